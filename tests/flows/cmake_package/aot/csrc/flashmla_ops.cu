#include <Python.h>
#include <cuda_runtime.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
#error "this one is for SM90 alone"
#endif

__global__ void attend(float *x) { x[threadIdx.x] += 1; }

static PyObject *run(PyObject *, PyObject *) {
  attend<<<1, 32>>>(nullptr);
  return PyLong_FromLong(cudaGetLastError());
}

static PyMethodDef methods[] = {{"run", run, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "flashmla_ops", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_flashmla_ops() { return PyModule_Create(&module); }
