// What the host hands to a kernel. ddas_gpu/ops/marshal.py builds the same records with numpy; the
// PRIMITIVE_* codes come from the op table as compiler definitions, so they are written down once.
#pragma once

struct Task {          // one op on one image, or in place on a rectangle of it
    int primitive;     // PRIMITIVE_*
    float factor;      // of the blends
    int ints[6];       // affine coefficients, threshold, mask or sides
    unsigned draw[2];  // uniform on 0..2^32-1, fresh for every image and op: Cutout's centre
    int left, top, width, height;  // of the rectangle; width 0: the whole image
    int fill;          // what comes from outside the image, and what Cutout leaves
};

struct Picture {  // one image; its places count from where the memory of all images begins
    long long source, target;
    long long scratch;  // as large as the target; for chains of several tasks or of rectangles
    int height, width;
    int source_pitch;  // bytes from one row to the next; target and scratch are dense
};

struct Chain {  // the ops on one image: tasks[first], …, tasks[first + count - 1]
    int first, count;  // copies among them do nothing; where nothing is done, the image is copied
};

struct Batch {
    const Picture* pictures;
    const Chain* chains;  // one a picture
    const Task* tasks;
    const unsigned char* sources;
    unsigned char* targets;
    unsigned char* scratches;
};

static_assert(sizeof(Task) == 60 && sizeof(Picture) == 40 && sizeof(Chain) == 8,
              "the records of marshal.py");

// How often a chain writes the whole image; rectangles are changed in place. Where a rectangle comes
// first, or nothing at all, the image is copied before.
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
