// The input of a model from an image: normalise, holes, padding, layout.
#pragma once

#include <algorithm>

#include "cpu_job.h"

namespace {

// Writes one row of `width` pixels; `across` is from one channel to the next.
template <class Word>
void write_planes(const byte* __restrict from, Word* __restrict to, std::ptrdiff_t across, int width,
                  const Word* __restrict table) {
    for (int x = 0; x < width; ++x)
        for (int c = 0; c < 3; ++c) to[c * across + x] = table[256 * c + from[3 * x + c]];
}

template <class Word>
void write_pixels(const byte* __restrict from, Word* __restrict to, int width,
                  const Word* __restrict table) {
    for (int x = 0; x < 3 * width; x += 3)
        for (int c = 0; c < 3; ++c) to[x + c] = table[256 * c + from[x + c]];
}

template <class Word>
void write_words(Source image, const Picture& picture, const Inputs& inputs, std::int64_t number) {
    const std::ptrdiff_t pixels = std::ptrdiff_t(inputs.height) * inputs.width;
    const Word* table = static_cast<const Word*>(inputs.table);
    Word* const out = static_cast<Word*>(inputs.out) + number * 3 * pixels;
    const Hole& hole = inputs.holes[number];
    const int left = std::max(hole.left, 0), right = std::min(hole.right, picture.width);
    // Sets the pixels from `begin` to `end` of a row to 0.
    auto clear = [&](int y, int begin, int end) {
        if (begin >= end) return;
        Word* row = out + std::ptrdiff_t(y) * inputs.width * (inputs.planar ? 1 : 3);
        if (inputs.planar)
            for (int c = 0; c < 3; ++c) std::fill(row + c * pixels + begin, row + c * pixels + end, 0);
        else
            std::fill(row + 3 * begin, row + 3 * end, 0);
    };
    for (int y = 0; y < inputs.height; ++y) {
        if (y >= picture.height) {
            clear(y, 0, inputs.width);
            continue;
        }
        std::ptrdiff_t first = std::ptrdiff_t(y) * inputs.width;
        if (inputs.planar)
            write_planes(image.row(y), out + first, pixels, picture.width, table);
        else
            write_pixels(image.row(y), out + 3 * first, picture.width, table);
        if (y >= hole.top && y < hole.bottom) clear(y, left, right);
        clear(y, picture.width, inputs.width);
    }
}

void write_inputs(Source image, const Picture& picture, const Inputs& inputs, std::int64_t number) {
    if (inputs.word_bytes == 4)
        write_words<std::uint32_t>(image, picture, inputs, number);
    else
        write_words<std::uint16_t>(image, picture, inputs, number);
}

}  // namespace
