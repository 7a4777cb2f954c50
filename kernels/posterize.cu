// Posterize for a whole batch: no switch, no shared memory, and several blocks per image (gridDim.y).
#include "blocks.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 2)
posterize(const Picture* pictures, const Chain* chains, const Task* tasks, const byte* sources,
          byte* targets, byte* scratches) {
    point_image<posterize_pixel, true>(
        first_job({pictures, chains, tasks, sources, targets, scratches}));
}
