// A barrier for the threads of one step. A thread that waits spins for some 50 microseconds, which is
// longer than threads with a processor of their own differ, and then sleeps until it is woken: where
// another program has the processor of a thread, spinning would only take more of it away.

#pragma once

#include <immintrin.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

class Barrier {
    std::atomic<int> waiting{0}, turn{0}, asleep{0};
    std::mutex door;
    std::condition_variable bell;

    // Returns whether the turn ended while this thread was spinning.
    bool spin(int now) const {
        using Clock = std::chrono::steady_clock;
        const auto end = Clock::now() + std::chrono::microseconds(50);
        do {
            for (int i = 0; i < 64; ++i) {
                if (turn.load(std::memory_order_acquire) != now) return true;
                _mm_pause();
            }
        } while (Clock::now() < end);
        return false;
    }

  public:
    // Returns when all threads of the crew have arrived, and have done what comes before.
    void wait(int crew) {
        if (crew == 1) return;
        const int now = turn.load(std::memory_order_acquire);
        if (waiting.fetch_add(1, std::memory_order_acq_rel) + 1 == crew) {
            waiting.store(0, std::memory_order_relaxed);
            turn.store(now + 1);  // before it asks who sleeps: a sleeper counts itself, then looks
            if (asleep.load() > 0) {
                std::lock_guard<std::mutex> hold(door);
                bell.notify_all();
            }
        } else if (!spin(now)) {
            std::unique_lock<std::mutex> hold(door);
            asleep.fetch_add(1);
            bell.wait(hold, [&] { return turn.load() != now; });
            asleep.fetch_sub(1);
        }
    }
};
