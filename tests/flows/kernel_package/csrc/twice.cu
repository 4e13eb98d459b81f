#include <cuda_runtime.h>

__global__ void twice(float *x) { x[threadIdx.x] *= 2; }

extern "C" int run_twice(float *x) {
  twice<<<1, 32>>>(x);
  return cudaGetLastError();
}

#ifdef BUILT_AT
__attribute__((used)) static int BUILT_AT = 0;
#endif
