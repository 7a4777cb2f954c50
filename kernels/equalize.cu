// Equalize alone, for a batch in which every image has it: one block an image, because the table
// needs the whole histogram.
#include "blocks.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 2)
equalize(const Picture* pictures, const Task* tasks) {
    __shared__ Shared shared;
    equalize_image(first_job(pictures[blockIdx.x], tasks), shared);
}
