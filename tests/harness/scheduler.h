// What the scheduler and the race check tell each other.
#pragma once

#include <cstddef>
#include <string>

#include "cuda_on_host.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace cuda_on_host {

struct Memory {
    const char* start = nullptr;
    size_t bytes = 0;
    bool holds(const void* address, size_t n) const {
        auto at = static_cast<const char*>(address);
        return at >= start && at + n <= start + bytes;
    }
};

struct Running {
    bool active = false;  // a thread of a kernel runs, not the harness
    int block, thread;    // linear indices
    int interval;         // barriers of the block so far
    Memory stack;         // of the thread
};
extern Running running;

std::string block_name(int linear);   // "block (1, 0, 0)"
std::string thread_name(int linear);  // "thread (31, 2, 0)"

// Called as a launch and each of its blocks start. `library` holds the constants of the kernels.
void start_launch(Memory library);
void start_block(Memory shared);

}  // namespace cuda_on_host
