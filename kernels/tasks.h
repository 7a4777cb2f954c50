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
    long long scratch;  // as large as the target; used by chains of more than one task
    int height, width;
    int source_pitch;  // bytes from one row to the next; target and scratch are dense
};

struct Chain {  // the ops on one image: tasks[first], …, tasks[first + count - 1]
    int first, count;  // count 0: a copy
    int whole;         // how many of the tasks are on the whole image; the first one is
};

struct Batch {
    const Picture* pictures;
    const Chain* chains;  // one a picture
    const Task* tasks;
    const unsigned char* sources;
    unsigned char* targets;
    unsigned char* scratches;
};

static_assert(sizeof(Task) == 60 && sizeof(Picture) == 40 && sizeof(Chain) == 12,
              "the records of marshal.py");
