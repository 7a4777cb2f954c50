// Threads that help with the images of a batch.
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

namespace {

// What a caller and its helpers do together. Helpers may come when all is done: they then find nothing
// left and touch nothing else.
struct Work {
    virtual ~Work() = default;
    virtual void take_part() = 0;
};

// Threads that wait for work. Nobody waits for them: on a busy machine it may take milliseconds until
// one gets a core, and by then the caller has done the work alone.
class Helpers {
public:
    void call(const std::shared_ptr<Work>& work, std::int64_t helpers) {
        {
            std::lock_guard<std::mutex> lock(mutex);
            for (; threads < helpers; ++threads) std::thread([this] { wait(); }).detach();
            for (std::int64_t i = 0; i < helpers; ++i) calls.push_back(work);
        }
        for (std::int64_t i = 0; i < helpers; ++i) wake.notify_one();
    }

    // Those of this process: a fork leaves the threads behind. They last as long as the process.
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
            work->take_part();
        }
    }

    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::shared_ptr<Work>> calls;
    std::int64_t threads = 0;
};

}  // namespace
