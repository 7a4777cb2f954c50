// Any mix of ops on whole images and on rectangles of them, such as the boxes of objects.
#include "chain.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
augment_parts(const Picture* pictures, const Task* tasks) {
    __shared__ Shared shared;
    run_chain<true>(pictures[blockIdx.x], tasks, shared);
}
