// The C interface of roundelay for programs that are compiled against torch at the user's: a table of its functions,
// its errors, and the threads on which callbacks of ended work run.
//
// The functions are looked up in the native module of the Python package, so nothing is linked against it.

#pragma once

#include <roundelay.h>

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

namespace roundelay {

#define ROUNDELAY_FUNCTIONS(F)                                                                  \
  F(rl_abi_version) F(rl_version) F(rl_last_error) F(rl_process_word)                           \
  F(rl_join) F(rl_alone) F(rl_reconfigure_handle) F(rl_reconfigure)                             \
  F(rl_cuda) F(rl_split) F(rl_free) F(rl_rank) F(rl_size)                                       \
  F(rl_suspend) F(rl_resume) F(rl_memory_stats)                                                 \
  F(rl_set_timeout) F(rl_set_hints) F(rl_hint_known) F(rl_explain) F(rl_abort) F(rl_is_aborted) \
  F(rl_all_reduce) F(rl_all_reduce_into) F(rl_reduce) F(rl_broadcast)                           \
  F(rl_all_gather) F(rl_all_gather_list) F(rl_all_gather_v)                                     \
  F(rl_reduce_scatter) F(rl_reduce_scatter_list) F(rl_reduce_scatter_v)                         \
  F(rl_all_to_all) F(rl_all_to_all_list) F(rl_all_to_all_v)                                     \
  F(rl_gather) F(rl_gather_list) F(rl_scatter) F(rl_scatter_list) F(rl_barrier)                 \
  F(rl_send) F(rl_recv) F(rl_batch) F(rl_work_source)                                           \
  F(rl_window_create) F(rl_window_free) F(rl_window_drop) F(rl_window_put) F(rl_window_signal)  \
  F(rl_window_wait_signal)                                                                      \
  F(rl_window_take_signal) F(rl_window_attributes) F(rl_window_map_remote) F(rl_alloc)          \
  F(rl_allocation_free)                                                                         \
  F(rl_work_wait) F(rl_work_is_done) F(rl_work_on_done) F(rl_work_free)

// The functions of the C interface.
struct Functions {
#define ROUNDELAY_MEMBER(name) decltype(&::name) name = nullptr;
  ROUNDELAY_FUNCTIONS(ROUNDELAY_MEMBER)
#undef ROUNDELAY_MEMBER
};

inline Functions& functions() {
  static Functions table;
  return table;
}

inline const Functions& rl() {
  return functions();
}

// Finds the functions in the library at a path. Throws `std::runtime_error` that says what is missing.
inline void load(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw std::runtime_error("roundelay: " + path + " cannot be opened: " + dlerror());
  }
  auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) {
      throw std::runtime_error(
          "roundelay: " + path + " has no function " + name + ": install the wheel of roundelay again");
    }
  };
  Functions table;
#define ROUNDELAY_FIND(name) find(#name, table.name);
  ROUNDELAY_FUNCTIONS(ROUNDELAY_FIND)
#undef ROUNDELAY_FIND
  if (table.rl_abi_version() != RL_ABI_VERSION) {
    throw std::runtime_error(
        "roundelay: " + path + " has version " + std::to_string(table.rl_abi_version()) +
        " of the C interface, the header has " + std::to_string(RL_ABI_VERSION) + ": install roundelay again");
  }
  functions() = table;
}

// An error of the C interface.
struct Error {
  int code = 0;
  int kind = RL_KIND_OTHER;
  int rank = -1;
  int peer = -1;
  int step = -1;
  std::string text;
  std::string source;
};

// Returns the error of the last call on this thread.
inline Error last_error() {
  rl_error error{};
  rl().rl_last_error(&error);
  auto text = [](const char* given) { return std::string(given == nullptr ? "" : given); };
  return Error{error.code, error.kind, error.rank, error.peer, error.step, text(error.text), text(error.source)};
}

// True if a group is of no use after an error: its arguments were right, and something may have moved.
inline bool ends_group(const Error& error) {
  switch (error.kind) {
    case RL_KIND_UNSUPPORTED:
    case RL_KIND_USAGE:
    case RL_KIND_SETTINGS:
      return false;
    default:
      return true;
  }
}

// The process that has made an object. A child of `fork` is none of its group, and has neither its threads nor its locks.
class OwnerProcess {
 public:
  bool is_here() const {
    return *word_ != 0;
  }

 private:
  const volatile uint32_t* word_ = rl().rl_process_word();
};

// Returns the object of its type that belongs to this process. A child of `fork` has one of its own: its parent's names
// threads and groups that the child does not have, and may be locked. It is never freed: threads outlive the statics of a
// program.
template <class T>
T& of_process() {
  struct Owned {
    pid_t process = getpid();
    T object;
  };
  static std::atomic<Owned*> current{nullptr};
  Owned* found = current.load();
  while (found == nullptr || found->process != getpid()) {
    auto* made = new Owned();
    if (current.compare_exchange_strong(found, made)) {
      return made->object;
    }
    delete made; // Another thread was first.
  }
  return found->object;
}

// The threads on which callbacks of ended work run. A callback may start operations and wait for them, so it never runs
// on a progress thread, and whenever all threads are busy there is one more.
class Completions {
 public:
  // Runs a callback on a thread that has nothing else to do.
  static void run(std::function<void()> callback) {
    Completions& all = of_process<Completions>();
    std::unique_lock<std::mutex> lock(all.mutex_);
    all.waiting_.push_back(std::move(callback));
    if (all.idle_ >= all.waiting_.size()) {
      all.more_.notify_one();
      return;
    }
    lock.unlock();
    std::thread([&all] { all.serve(); }).detach();
  }

 private:
  void serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      if (waiting_.empty()) {
        ++idle_;
        more_.wait_for(lock, std::chrono::seconds(5), [this] { return !waiting_.empty(); });
        --idle_;
      }
      if (waiting_.empty()) {
        return;
      }
      auto callback = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      callback();
      callback = nullptr;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<std::function<void()>> waiting_;
  size_t idle_ = 0;
};

} // namespace roundelay
