// Two ranks start four sums in the background, compute, and wait for all of them.
//
//   c++ -std=c++17 -pthread overlap.cpp -I ../../ffi/include -L ../../target/release -lroundelay_ffi -o overlap

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "roundelay.h"

namespace {

void check(int32_t status) {
    if (status == 0) return;
    rl_error error;
    rl_last_error(&error);
    throw std::runtime_error("RL" + std::to_string(error.code) + ": " + error.text);
}

struct Free {
    void operator()(rl_comm *comm) const { rl_free(comm); }
    void operator()(rl_work *work) const { rl_work_free(work); }
};
using Comm = std::unique_ptr<rl_comm, Free>;
using Work = std::unique_ptr<rl_work, Free>;

Work all_reduce_async(rl_comm *comm, std::vector<double> &data) {
    rl_work *work = nullptr;
    check(rl_all_reduce(comm, data.data(), data.size(), RL_F64, RL_SUM, nullptr, &work));
    return Work(work);
}

void rank(rl_comm *comm) {
    std::array<std::vector<double>, 4> gradients;
    std::vector<Work> works;
    for (std::size_t i = 0; i < gradients.size(); i++) {
        gradients[i].assign(1 << 16, (static_cast<double>(i) + 1) / 2);
        works.push_back(all_reduce_async(comm, gradients[i]));
    }
    // ... compute something else ...
    int done = 0;
    for (auto &work : works) {
        int32_t ended = 0;
        check(rl_work_wait(work.get(), UINT64_MAX, &ended));
        done += ended;
    }
    double sum = 0;
    for (const auto &one : gradients) sum += one[1234];
    std::printf("rank %u: %d works done, sum %g\n", rl_rank(comm), done, sum);
}

}  // namespace

int main() {
    std::array<rl_comm *, 2> made{};
    check(rl_local(made.size(), made.data()));
    std::vector<std::thread> threads;
    for (rl_comm *comm : made) {
        threads.emplace_back([owned = Comm(comm)] { rank(owned.get()); });
    }
    for (auto &thread : threads) thread.join();
    return 0;
}
