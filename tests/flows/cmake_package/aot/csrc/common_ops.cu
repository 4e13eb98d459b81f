#include <Python.h>
#include <cuda_runtime.h>

#include <cuda/std/cstdint>

#include "cutlass/stars.h"
#include "fmt/words.h"

__global__ void shine(float *x) { x[threadIdx.x] *= STARS; }

static PyObject *told(PyObject *, PyObject *) {
  // What it is made of; with a GPU the kernel would run too.
  cuda::std::int64_t stars = STARS;
  return PyUnicode_FromString(words(stars, CUTLASS EDITED));
}

static PyObject *run(PyObject *, PyObject *) {
  shine<<<1, 32>>>(nullptr);
  return PyLong_FromLong(cudaGetLastError());
}

static PyMethodDef methods[] = {
    {"told", told, METH_NOARGS, ""}, {"run", run, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "common_ops", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_common_ops() { return PyModule_Create(&module); }
