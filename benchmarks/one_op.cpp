// One op on one image by the CPU target, for counting its instructions:
//     one_op SIDE TASK CALLS     TASK is a file with a record of tasks.h, or empty for a copy
#include "cpu.cpp"

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int, char** arguments) {
    int side = std::atoi(arguments[1]), calls = std::atoi(arguments[3]);
    std::FILE* file = std::fopen(arguments[2], "rb");
    Task task;
    int count = int(std::fread(&task, sizeof task, 1, file));
    std::vector<byte> source(3 * side * side), target(source.size());
    unsigned noise = 1;
    for (byte& v : source) v = (noise = noise * 1664525 + 1013904223) >> 24;
    Picture picture{0, 0, 0, side, side, 3 * side};
    Chain chain{0, count};
    for (int i = 0; i < calls; ++i)
        ddas_augment(&picture, &chain, &task, source.data(), target.data(), 1, 1);
}
