// Solarize alone, for a batch in which every image has it: no switch, no shared memory, and several
// blocks an image (gridDim.y).
#include "blocks.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 2)
solarize(const Picture* pictures, const Task* tasks) {
    solarize_image(first_job(pictures[blockIdx.x], tasks));
}
