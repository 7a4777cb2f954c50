// Equalize for a whole batch: one block per image, because the table needs the whole histogram.
#include "blocks.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 2)
equalize(const Picture* pictures, const Chain* chains, const Task* tasks, const byte* sources,
         byte* targets, byte* scratches) {
    __shared__ Shared shared;
    equalize_image(first_job({pictures, chains, tasks, sources, targets, scratches}), shared);
}
