// A block runs the whole chain of ops of one picture.
#pragma once

#include "blocks.cuh"

// Runs an op on a rectangle of `image`: into the spare memory, then copies the result back.
PIXEL void run_in_place(const Task* task, byte* image, int pitch, byte* spare, Shared& shared) {
    byte* place = image + (long long)task->top * pitch + 3 * task->left;
    int height = task->height, width = task->width;
    run({task, place, pitch, spare, 3 * width, height, width}, shared);
    __syncthreads();
    copy({task, spare, 3 * width, place, pitch, height, width});
}

// Returns the job of copying the result. `with_parts`: some tasks are on rectangles; that needs more
// registers, hence other kernels. `to_target`: the result must be in the target; else the result of a
// chain of nothing is the source itself.
template <bool with_parts, bool to_target>
PIXEL Job run_chain(const Batch& batch, Shared& shared) {
    Job job = first_job(batch);
    byte* const target = job.out;
    byte* const scratch = batch.scratches + batch.pictures[blockIdx.x].scratch;
    const Task* const end = job.task + batch.chains[blockIdx.x].count;
    Passes passes = passes_of(job.task, int(end - job.task));
    // Passes alternate between target and scratch; the last one writes the target.
    auto begin_pass = [&] { job.out = passes.count-- % 2 ? target : scratch; };
    auto end_pass = [&] {
        // The next op reads what other threads have written, and reuses `shared`.
        __syncthreads();
        job.in = job.out;
        job.pitch = job.out_pitch;
    };
    if (passes.copy_first && (to_target || passes.parts)) {
        begin_pass();
        copy(job);
        end_pass();
    }
    for (; job.task < end; ++job.task) {
        if (job.task->primitive == PRIMITIVE_COPY) continue;
        if (with_parts && job.task->width) {
            byte* spare = job.out == target ? scratch : target;
            run_in_place(job.task, job.out, job.pitch, spare, shared);
        } else {
            begin_pass();
            run(job, shared);
        }
        end_pass();
    }
    return job;
}
