// Ops that look at the neighbours of a pixel.
#pragma once

#include <vector>

#include "cpu_job.h"

namespace {

// Calls work(y, first byte, last byte + 1) for the rows that a filter of this margin reaches, and
// copies the border around them, as Pillow does.
template <class Work>
void filter_rows(const Job& job, int margin, Work work) {
    int n = job.row_bytes(), edge = 3 * margin;
    for (int y = 0; y < job.height; ++y) {
        const byte* from = job.in.row(y);
        byte* to = job.out_row(y);
        if (y < margin || y >= job.height - margin || n <= 2 * edge) {
            std::memcpy(to, from, n);
        } else {
            std::memcpy(to, from, edge);
            work(y, edge, n - edge);
            std::memcpy(to + n - edge, from + n - edge, edge);
        }
    }
}

// Both filters add up columns first: a column's sum serves several pixels of the row. The rows and
// sums never overlap, which ivdep tells a compiler that cannot see it.
typedef unsigned short Sum;

template <class Finish>
void smooth_rows(const Job& job, Finish finish) {
    std::vector<Sum> columns(job.row_bytes());
    filter_rows(job, 1, [&](int y, int begin, int end) {
        const byte* __restrict above = job.in.row(y - 1);
        const byte* __restrict here = job.in.row(y);
        const byte* __restrict under = job.in.row(y + 1);
        byte* __restrict to = job.out_row(y);
        Sum* __restrict column = columns.data();
#pragma GCC ivdep
        for (int i = 0; i < end + 3; ++i) column[i] = above[i] + here[i] + under[i];
#pragma GCC ivdep
        for (int i = begin; i < end; ++i) {
            Sum sum = column[i - 3] + column[i] + column[i + 3] + 4 * here[i];
            to[i] = finish(smooth_pixel(sum), here[i]);
        }
    });
}

void blur(const Job& job) {
    std::vector<Sum> columns(2 * job.row_bytes());
    filter_rows(job, 2, [&](int y, int begin, int end) {
        const byte* __restrict r0 = job.in.row(y - 2);
        const byte* __restrict r1 = job.in.row(y - 1);
        const byte* __restrict r2 = job.in.row(y);
        const byte* __restrict r3 = job.in.row(y + 1);
        const byte* __restrict r4 = job.in.row(y + 2);
        byte* __restrict to = job.out_row(y);
        Sum* __restrict outer = columns.data();  // of the first and the last row
        Sum* __restrict inner = outer + job.row_bytes();
#pragma GCC ivdep
        for (int i = 0; i < end + 6; ++i) {
            outer[i] = r0[i] + r4[i];
            inner[i] = r1[i] + r2[i] + r3[i];
        }
#pragma GCC ivdep
        for (int i = begin; i < end; ++i) {
            Sum sum = outer[i - 6] + outer[i - 3] + outer[i] + outer[i + 3] + outer[i + 6] +
                      inner[i - 6] + inner[i + 6];
            to[i] = blur_pixel(sum);
        }
    });
}

}  // namespace
