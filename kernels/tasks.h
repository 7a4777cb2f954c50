// The records that the host passes to a kernel; ddas_gpu/ops/records.py builds them with numpy. It also
// passes two kinds of compiler definitions, made from the op table, so that both targets read one list:
//     PRIMITIVE_<NAME>      the code of each primitive
//     POINT_PRIMITIVES(P)   P(NAME, function of pixels.h, map_bytes or map_values) for each point op
#pragma once

#include "pixels.h"

struct Task {          // one op on one image, or in place on a rectangle of it
    int primitive;     // PRIMITIVE_*
    Numbers numbers;
    unsigned draw[2];  // uniform on 0..2^32-1, drawn per image and op: the centre of Cutout
    int left, top, width, height;  // of the rectangle; width 0: the whole image
    int fill;          // the value of pixels outside the image and inside Cutout's square
};

struct Picture {  // one image; offsets in bytes into the buffers of the batch
    long long source, target;
    long long scratch;  // as large as the target; for chains of several tasks or on rectangles
    int height, width;
    int source_pitch;  // bytes from one row to the next; target and scratch are contiguous
};

struct Chain {  // the ops on one image: tasks[first], …, tasks[first + count - 1]
    int first, count;  // PRIMITIVE_COPY tasks are skipped; a chain of nothing else copies the image
};

struct Batch {
    const Picture* pictures;
    const Chain* chains;  // one per picture
    const Task* tasks;
    const byte* sources;
    byte* targets;
    byte* scratches;
};

struct Hole {  // a rectangle that is 0 in the model's input; right and bottom are excluded
    int left, top, right, bottom;
};

struct Inputs {  // how the images of a batch become the input of a model
    const Hole* holes;  // one per picture
    const void* table;  // the model's number for each byte of each channel: 3 x 256 words
    void* out;          // the pictures one after the other
    int height, width;  // of each; at least those of the picture, to the right and below are zeros
    int planar;         // 1: (3, height, width); 0: (height, width, 3)
    int word_bytes;     // 4: float32; 2: float16 or bfloat16
};

// Returns whether a pixel of the model's input comes from the picture; else it is 0.
PIXEL bool is_visible(int x, int y, int height, int width, const Hole& hole) {
    bool in_hole = x >= hole.left && x < hole.right && y >= hole.top && y < hole.bottom;
    return x < width && y < height && !in_hole;
}

static_assert(sizeof(Task) == 60 && sizeof(Picture) == 40 && sizeof(Chain) == 8 &&
                  sizeof(Hole) == 16,
              "must match the records of ddas_gpu/ops/records.py");

// How often a chain writes the whole image; rectangles are changed in place. An image is copied first
// if its chain is empty or begins with a rectangle.
struct Passes {
    int count;
    bool copy_first, parts;
};

PIXEL Passes passes_of(const Task* tasks, int count) {
    Passes passes = {0, true, false};
    for (int i = 0; i < count; ++i) {
        if (tasks[i].primitive == PRIMITIVE_COPY) continue;
        if (tasks[i].width) {
            passes.parts = true;
        } else {
            if (!passes.parts) passes.copy_first = false;
            ++passes.count;
        }
    }
    passes.count += passes.copy_first;
    return passes;
}
