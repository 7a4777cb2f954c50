// Stands in for racecheck.cpp in the fast build.
#include "scheduler.h"

namespace cuda_on_host {
void start_launch(Memory) {}
void start_block(Memory) {}
void note_atomic(void*, size_t, const void*) {}
}  // namespace cuda_on_host

EXPORT void watch_memory(const char*, size_t) {}
EXPORT void forget_memory() {}
EXPORT const void* guilty_instruction() { return nullptr; }
