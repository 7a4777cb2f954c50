// Common parts of the CPU target's ops: one op on one image, row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#define PIXEL static inline
#include "tasks.h"

namespace {

struct Source {
    const byte* data;
    int pitch;
    const byte* row(int y) const { return data + std::ptrdiff_t(y) * pitch; }
};

struct Job {  // one op on one image or rectangle: from `in` to `out`, which never overlap
    const Task& task;
    Source in;
    byte* out;
    int out_pitch;
    int height, width;

    int row_bytes() const { return 3 * width; }
    byte* out_row(int y) const { return out + std::ptrdiff_t(y) * out_pitch; }
    std::int64_t pixels() const { return std::int64_t(height) * width; }
};

// Calls work(source bytes, target bytes, count) for every row, or once for a contiguous image.
// The count is a multiple of 3, and every call starts at a red byte.
template <class Work>
void for_rows(const Job& job, Work work) {
    if (job.in.pitch == job.row_bytes() && job.out_pitch == job.row_bytes()) {
        work(job.in.data, job.out, 3 * job.pixels());
    } else {
        for (int y = 0; y < job.height; ++y)
            work(job.in.row(y), job.out_row(y), std::int64_t(job.row_bytes()));
    }
}

// A large memcpy may use `rep movsb`, which on some virtual machines has a tenth of the speed of
// vector moves. Blocks of a fixed size always compile to vector moves.
void copy_bytes(byte* to, const byte* from, std::int64_t n) {
    constexpr int block = 256;
    for (; n >= block; n -= block, to += block, from += block) std::memcpy(to, from, block);
    std::memcpy(to, from, n);
}

void copy(const Job& job) {
    for_rows(job, [](const byte* from, byte* to, std::int64_t n) { copy_bytes(to, from, n); });
}

template <class Function>
void map_bytes(const Job& job, Function function) {
    for_rows(job, [&](const byte* __restrict from, byte* __restrict to, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) to[i] = function(from[i]);
    });
}

}  // namespace
