// Threads that help with the images of a batch.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

namespace {

// Work that a caller and its helpers share. A helper may start after all of it is done; it must then
// return without touching the images.
struct Work {
    virtual ~Work() = default;
    virtual void run_part() = 0;
};

// Threads that wait for work. A caller does not wait for them to start: on a busy machine that may
// take milliseconds, and the caller then does all the work itself.
class Helpers {
public:
    void call(const std::shared_ptr<Work>& work, std::int64_t helpers) {
        {
            std::lock_guard<std::mutex> lock(mutex);
            try {
                for (; threads < helpers; ++threads) std::thread([this] { wait(); }).detach();
            } catch (const std::system_error&) {  // the limit of threads: go on with fewer
                helpers = std::min(helpers, threads);
            }
            for (std::int64_t i = 0; i < helpers; ++i) calls.push_back(work);
        }
        for (std::int64_t i = 0; i < helpers; ++i) wake.notify_one();
    }

    // The helpers of this process; a forked process has no threads and needs its own. Never freed.
    static Helpers& ours() {
        static std::mutex guard;
        static Helpers* helpers = nullptr;
        static pid_t owner = 0;
        std::lock_guard<std::mutex> lock(guard);
        if (owner != getpid()) {
            helpers = new Helpers;
            owner = getpid();
        }
        return *helpers;
    }

private:
    void wait() {
        for (;;) {
            std::shared_ptr<Work> work;
            {
                std::unique_lock<std::mutex> lock(mutex);
                wake.wait(lock, [this] { return !calls.empty(); });
                work = std::move(calls.front());
                calls.pop_front();
            }
            work->run_part();
        }
    }

    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::shared_ptr<Work>> calls;
    std::int64_t threads = 0;
};

}  // namespace
