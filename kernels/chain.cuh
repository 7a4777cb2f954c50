// A block takes a picture through its whole chain of ops.
#pragma once

#include "blocks.cuh"

// An op on a rectangle of `image`: into the spare memory, then back to its place.
PIXEL void run_in_place(const Task* task, byte* image, int pitch, byte* spare, Shared& shared) {
    byte* place = image + (long long)task->top * pitch + 3 * task->left;
    int height = task->height, width = task->width;
    run({task, place, pitch, spare, 3 * width, height, width}, shared);
    __syncthreads();
    copy({task, spare, 3 * width, place, pitch, height, width});
}

// `with_parts`: some tasks are on rectangles. It takes more registers, so it is a kernel of its own.
template <bool with_parts>
PIXEL void run_chain(const Batch& batch, Shared& shared) {
    const Chain& chain = batch.chains[blockIdx.x];
    Job job = first_job(batch);
    if (chain.count == 0) copy(job);
    byte* target = job.out;
    byte* scratch = batch.scratches + batch.pictures[blockIdx.x].scratch;
    byte* image = nullptr;  // the latest state, once it is no longer the source
    for (int i = 0, whole = chain.whole; i < chain.count; ++i, ++job.task) {
        if (with_parts && job.task->width) {
            byte* spare = image == target ? scratch : target;
            run_in_place(job.task, image, job.pitch, spare, shared);
        } else {
            // These take turns so that the last one writes the target.
            image = job.out = whole-- % 2 ? target : scratch;
            run(job, shared);
            job.in = image;
            job.pitch = job.out_pitch;
        }
        // The next op reads what other threads have written here, and reuses `shared`.
        __syncthreads();
    }
}
