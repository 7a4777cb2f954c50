// Ops that read the neighbours of a pixel.
#pragma once

#include <algorithm>

#include "cpu_job.h"

namespace {

constexpr int most_bytes = 2048;  // filtered at a time: the column sums stay in the L1 cache

// Calls work(source, target, pitch, count) for runs of bytes where a filter of this margin fits, then
// copies the border, as Pillow does. In contiguous images a run covers all rows, which is faster for
// small images: its wrong bytes at the ends of rows are border and are overwritten.
template <class Work>
void filter_runs(const Job& job, int margin, Work work) {
    const int row = job.row_bytes(), edge = 3 * margin, last = job.height - margin;
    if (row <= 2 * edge || job.height <= 2 * margin) return copy(job);
    const bool adjacent = job.in.pitch == row && job.out_pitch == row;
    const int rows = adjacent ? last - margin : 1;  // of a run
    for (int y = margin; y < last; y += rows) {
        std::int64_t end = std::int64_t(rows) * row - edge;
        for (std::int64_t i = edge; i < end; i += most_bytes) {
            int count = int(std::min<std::int64_t>(most_bytes, end - i));
            work(job.in.row(y) + i, job.out_row(y) + i, job.in.pitch, count);
        }
    }
    for (int y = 0; y < job.height; ++y) {
        const byte* from = job.in.row(y);
        byte* to = job.out_row(y);
        if (y < margin || y >= last) {
            std::memcpy(to, from, row);
        } else {
            std::memcpy(to, from, edge);
            std::memcpy(to + row - edge, from + row - edge, edge);
        }
    }
}

// Both filters compute column sums first, which several pixels of a row share. Rows and sums never
// overlap; ivdep tells the compiler so.
typedef unsigned short Sum;
constexpr int most_sums = most_bytes + 2 * 6;  // with the widest edges

template <class Finish>
void smooth_rows(const Job& job, Finish finish) {
    filter_runs(job, 1, [&](const byte* __restrict here, byte* __restrict to, int pitch, int n) {
        const byte* __restrict above = here - pitch;
        const byte* __restrict under = here + pitch;
        Sum columns[most_sums];
        Sum* __restrict column = columns + 3;
#pragma GCC ivdep
        for (int i = -3; i < n + 3; ++i) column[i] = above[i] + here[i] + under[i];
#pragma GCC ivdep
        for (int i = 0; i < n; ++i) {
            Sum sum = column[i - 3] + column[i] + column[i + 3] + 4 * here[i];
            to[i] = finish(smooth_pixel(sum), here[i]);
        }
    });
}

void blur(const Job& job) {
    filter_runs(job, 2, [&](const byte* __restrict r2, byte* __restrict to, int pitch, int n) {
        const byte* __restrict r0 = r2 - 2 * std::ptrdiff_t(pitch);
        const byte* __restrict r1 = r2 - pitch;
        const byte* __restrict r3 = r2 + pitch;
        const byte* __restrict r4 = r2 + 2 * std::ptrdiff_t(pitch);
        Sum outers[most_sums], inners[most_sums];
        Sum* __restrict outer = outers + 6;  // of the first and the last row
        Sum* __restrict inner = inners + 6;
#pragma GCC ivdep
        for (int i = -6; i < n + 6; ++i) {
            outer[i] = r0[i] + r4[i];
            inner[i] = r1[i] + r2[i] + r3[i];
        }
#pragma GCC ivdep
        for (int i = 0; i < n; ++i) {
            Sum sum = outer[i - 6] + outer[i - 3] + outer[i] + outer[i + 3] + outer[i + 6] +
                      inner[i - 6] + inner[i + 6];
            to[i] = blur_pixel(sum);
        }
    });
}

}  // namespace
