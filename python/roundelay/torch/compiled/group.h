// What the works of a group share: their hooks, and torch's profiler.

#pragma once

#include "flight.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/version.h>

#include <atomic>
#include <map>
#include <memory>

// 2.14 has the hooks of an abort; since 2.15 a backend says if it has them, and hooks of completion have come.
#ifdef C10D_BACKEND_HAS_HOOKS
#define ROUNDELAY_ABORT_HOOKS
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
#define ROUNDELAY_COMPLETION_HOOKS
#endif
#endif

namespace roundelay {

// What works of one group share: hooks, and the number of operations that go on.
//
// Hooks are called without the lock, since a hook may be unregistered while it runs; those of completion on the thread
// that learns of the end, the one of `_register_on_completion_hook`, which is Python, in order on a thread of its own.
class Group : public std::enable_shared_from_this<Group> {
 public:
  using Clock = std::chrono::steady_clock;
  using OnWork = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

  // The arguments of hooks for an operation.
  struct Ended {
    c10d::OpType type;
    uint64_t key;
    uint64_t sequence;
    Clock::time_point begun;
  };

  void begin() {
    std::lock_guard<std::mutex> lock(mutex_);
    ++pending_;
  }
  void end() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (--pending_ == 0) {
      none_.notify_all();
    }
  }

  // Waits until what has begun has ended, and its hooks have run. Looks for signals now and then, without the lock.
  void wait_for_pending(const std::function<void()>& look) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!none_.wait_for(lock, std::chrono::milliseconds(50), [this] { return pending_ == 0; })) {
      lock.unlock();
      look();
      lock.lock();
    }
  }

  // Calls the hooks of an operation that has ended with success.
  void succeeded(const Ended& ended) {
    if (!hooked()) {
      return;
    }
    auto now = Clock::now();
    std::chrono::duration<float> lasted = now - ended.begun;
    std::unique_lock<std::mutex> lock(mutex_);
    if (on_work_) {
      ended_.push_back(std::make_shared<c10d::WorkInfo>(ended.type, ended.sequence, ended.begun, now, lasted));
      ++pending_;
      if (!telling_) {
        telling_ = true;
        Completions::run([group = shared_from_this()] { group->tell(); });
      }
    }
#ifdef ROUNDELAY_COMPLETION_HOOKS
    auto hooks = on_completion_.list;
    lock.unlock();
    for (const c10d::CompletionHook& hook : *hooks) {
      hook({ended.key, lasted.count() * 1000.0f});
    }
#endif
  }

  // True once there is a hook of completion.
  bool hooked() const {
    return hooked_.load(std::memory_order_acquire);
  }

  // Returns the time if hooks will ask for it.
  Clock::time_point now() const {
    return hooked() ? Clock::now() : Clock::time_point();
  }

  // Sets the hook that is called for every work.
  void set_on_work(OnWork hook) {
    auto shared = std::make_shared<const OnWork>(std::move(hook));
    std::lock_guard<std::mutex> lock(mutex_);
    on_work_.swap(shared);
    hooked_ = true;
  }

#ifdef ROUNDELAY_COMPLETION_HOOKS
  void add_on_completion(int64_t id, c10d::CompletionHook hook) {
    on_completion_.add(mutex_, id, std::move(hook));
    hooked_ = true;
  }
  void drop_on_completion(int64_t id) {
    on_completion_.drop(mutex_, id);
  }
#endif

#ifdef ROUNDELAY_ABORT_HOOKS
  void add_on_abort(int64_t id, c10d::AbortHook hook) {
    on_abort_.add(mutex_, id, std::move(hook));
  }
  void drop_on_abort(int64_t id) {
    on_abort_.drop(mutex_, id);
  }
#endif

  // Has the hooks of an abort called, and the record of calls written: one was asked for, or an operation failed. The
  // error does not wait for them.
  void aborted() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::function<void()>> due;
#ifdef ROUNDELAY_ABORT_HOOKS
    due = *on_abort_.list;
#endif
    if (Flight::instance().on() && on_failure()) {
      due.push_back(on_failure());
    }
    if (due.empty() || aborting_) {
      return;
    }
    aborting_ = true;
    Completions::run([group = shared_from_this(), due] {
      for (const auto& hook : due) {
        try {
          hook();
        } catch (const std::exception& error) {
          ROUNDELAY_WARN("roundelay: an abort hook failed: ", error.what());
        }
      }
      std::lock_guard<std::mutex> done(group->mutex_);
      group->aborting_ = false;
      group->none_.notify_all();
    });
  }

  // What writes the record of calls, where the environment asks for it.
  static std::function<void()>& on_failure() {
    static std::function<void()> write;
    return write;
  }

  // Waits until no work goes on and all hooks have run, up to a time.
  void wait_for_all(std::chrono::seconds limit) {
    std::unique_lock<std::mutex> lock(mutex_);
    none_.wait_for(lock, limit, [this] { return pending_ == 0 && !aborting_; });
  }

  // Waits until the hooks of an abort have run, up to a time.
  void wait_for_hooks(std::chrono::seconds limit) {
    std::unique_lock<std::mutex> lock(mutex_);
    none_.wait_for(lock, limit, [this] { return !aborting_; });
  }

 private:
  // Hooks by their numbers. Who calls them takes the list, which is made anew when one comes or goes.
  template <class Hook>
  struct Hooks {
    std::map<int64_t, Hook> all;
    std::shared_ptr<const std::vector<Hook>> list = std::make_shared<const std::vector<Hook>>();

    void add(std::mutex& mutex, int64_t id, Hook hook) {
      change(mutex, [&] { std::swap(all[id], hook); });
    }
    void drop(std::mutex& mutex, int64_t id) {
      typename std::map<int64_t, Hook>::node_type dropped;
      change(mutex, [&] { dropped = all.extract(id); });
    }

   private:
    // What goes is freed without the lock: it may be Python's.
    template <class Change>
    void change(std::mutex& mutex, Change change) {
      auto made = std::make_shared<std::vector<Hook>>();
      std::shared_ptr<const std::vector<Hook>> before;
      std::lock_guard<std::mutex> lock(mutex);
      change();
      for (const auto& [id, hook] : all) {
        made->push_back(hook);
      }
      before = std::move(list);
      list = std::move(made);
    }
  };

  void tell() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!ended_.empty()) {
      auto info = std::move(ended_.front());
      ended_.pop_front();
      std::shared_ptr<const OnWork> hook = on_work_;
      lock.unlock();
      try {
        (*hook)(std::move(info));
      } catch (const std::exception& error) {
        ROUNDELAY_WARN("roundelay: a completion hook failed: ", error.what());
      }
      hook = nullptr;
      lock.lock();
      if (--pending_ == 0) {
        none_.notify_all();
      }
    }
    telling_ = false;
  }

  std::mutex mutex_;
  std::condition_variable none_;
  size_t pending_ = 0;
  std::atomic<bool> hooked_{false};
  bool telling_ = false;
  bool aborting_ = false;
  std::deque<std::shared_ptr<c10d::WorkInfo>> ended_;
  std::shared_ptr<const OnWork> on_work_;
#ifdef ROUNDELAY_ABORT_HOOKS
  Hooks<c10d::AbortHook> on_abort_;
#endif
#ifdef ROUNDELAY_COMPLETION_HOOKS
  Hooks<c10d::CompletionHook> on_completion_;
#endif
};

// An event of torch's profiler that spans an operation; empty while no profiler is active. It may end on any thread.
class Profiled {
 public:
  Profiled() = default;
  Profiled(const std::string& name, const Tensors& inputs) {
    auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
    if (!callbacks) {
      return;
    }
    auto record = std::make_shared<at::RecordFunction>(std::move(*callbacks));
    // Events whose thread does not wait for them are distinguished from those on its stack.
    record->_setAsync();
    std::vector<c10::IValue> values(inputs.begin(), inputs.end());
    record->before(name, c10::ArrayRef<const c10::IValue>(values.data(), values.size()));
    end_ = at::wrapPropagateTLSState([record] { record->end(); });
  }

  // True if a profiler is active on this thread.
  static bool active() {
    return at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value();
  }
  explicit operator bool() const {
    return static_cast<bool>(end_);
  }
  void end() {
    if (end_) {
      std::exchange(end_, nullptr)();
    }
  }

 private:
  std::function<void()> end_;
};

} // namespace roundelay
