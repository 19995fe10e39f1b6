// Work: operations in the background, and operations in a stream of a GPU.

#pragma once

#include "memory.h"

#include "../../torch/compiled/stream.h"

namespace torch::comms {
namespace {

// Passes failures of works, which may outlive their communicator, to its abort hooks, and counts those that go on.
struct Listener {
  std::recursive_mutex mutex;
  std::function<void()> failed;
  std::mutex counting;
  std::condition_variable none;
  size_t pending = 0;

  void begin() {
    const std::lock_guard<std::mutex> lock(counting);
    ++pending;
  }

  void end() {
    const std::lock_guard<std::mutex> lock(counting);
    if (--pending == 0) {
      none.notify_all();
    }
  }

  // Waits until works have ended and let go of their tensors, up to a time: a tensor may want the interpreter's lock,
  // which is not to be had once a program ends.
  void wait_for_all(std::chrono::seconds limit) {
    std::unique_lock<std::mutex> lock(counting);
    none.wait_for(lock, limit, [this] { return pending == 0; });
  }

  void tell() {
    const std::lock_guard<std::recursive_mutex> lock(mutex);
    if (failed) {
      failed();
    }
  }

  void set(std::function<void()> function) {
    const std::lock_guard<std::recursive_mutex> lock(mutex);
    failed = std::move(function);
  }
};

// An operation in the background.
class Work : public TorchWork {
 public:
  Work(std::vector<rl_work*> natives, Call call, milliseconds timeout, std::shared_ptr<Listener> listener)
      : natives_(std::move(natives)), call_(std::move(call)), timeout_(timeout), listener_(std::move(listener)) {}

  ~Work() override {
    for (rl_work* native : natives_) {
      rl().rl_work_free(native);
    }
  }

  // Marks the work as begun. It lives until the operation has ended, dropped or not.
  void start() {
    setStatus(WorkStatus::INPROGRESS);
    c10::raw::intrusive_ptr::incref(this);
    listener_->begin();
    if (rl().rl_work_on_done(natives_.back(), &Work::done, this) != 0) {
      listener_->end();
      c10::raw::intrusive_ptr::decref(this);
      refuse(roundelay::last_error().text);
    }
  }

  void wait() override {
    runWaitPreHooks();
    for (rl_work* native : natives_) {
      int32_t ended = 0;
      rl().rl_work_wait(native, UINT64_MAX, &ended);
    }
    settle();
    if (!error_.empty()) {
      listener_->tell();
      throw std::runtime_error(error_);
    }
    runWaitPostHooks();
  }

  void waitBlocking() override {
    wait();
  }

  milliseconds getTimeout() const override {
    return timeout_;
  }

 private:
  // Runs on a progress thread, which must not wait for the interpreter, as the end of a tensor may.
  static void done(void* context, int32_t) noexcept {
    auto work = c10::intrusive_ptr<Work>::reclaim(static_cast<Work*>(context));
    roundelay::Completions::run([work = std::move(work)]() mutable {
      for (rl_work* native : work->natives_) {
        int32_t ended = 0;
        rl().rl_work_wait(native, UINT64_MAX, &ended);
      }
      work->settle();
      const std::shared_ptr<Listener> listener = work->listener_;
      work.reset();
      listener->end();
    });
  }

  // Takes note of the end, which has come, and makes the copies that are due.
  void settle() {
    std::call_once(settled_, [this] {
      auto status = WorkStatus::COMPLETED;
      for (rl_work* native : natives_) {
        int32_t ended = 0;
        if (rl().rl_work_wait(native, 0, &ended) != 0) {
          const auto error = roundelay::last_error();
          error_ = words(error);
          status = error.kind == RL_KIND_TIMEOUT ? WorkStatus::TIMEDOUT : WorkStatus::ERROR;
          break;
        }
      }
      if (status == WorkStatus::COMPLETED) {
        try {
          for (const auto& due : call_.finish) {
            due();
          }
        } catch (const std::exception& error) {
          error_ = std::string("roundelay: a result could not be copied to its tensor: ") + error.what();
          status = WorkStatus::ERROR;
        }
      }
      call_ = Call{};
      setStatus(status);
    });
  }

 public:
  static std::string words(const roundelay::Error& error) {
    return (error.kind == RL_KIND_TIMEOUT ? "roundelay: Timed out waiting for a peer: " : "roundelay: ") + error.text;
  }

 private:
  std::vector<rl_work*> natives_;
  Call call_;
  milliseconds timeout_;
  std::shared_ptr<Listener> listener_;
  std::once_flag settled_;
  std::string error_;
};

// Operations in the stream of a GPU that is current when they are put there. They are complete, for the status and its
// hooks, once a stream has waited for them: it has their results in its order.
class OnStream : public TorchWork {
 public:
  OnStream(at::Device device, Tensors keep, milliseconds timeout)
      : enqueued_(device, std::move(keep), true), timeout_(timeout) {
    setStatus(WorkStatus::INPROGRESS);
  }

  void wait() override {
    runWaitPreHooks();
    enqueued_.wait();
    if (status() != WorkStatus::COMPLETED) {
      setStatus(WorkStatus::COMPLETED);
    }
    runWaitPostHooks();
  }

  void hostSynchronize() {
    enqueued_.synchronize();
  }

  void waitBlocking() override {
    wait();
    enqueued_.synchronize();
  }

  milliseconds getTimeout() const override {
    return timeout_;
  }

 protected:
  // A stream that waits for the future waits for the operation, which is not in the current one, perhaps.
  void markCompleted(c10::intrusive_ptr<c10::ivalue::Future> future, Tensors outputs) override {
    const c10::StreamGuard guard(enqueued_.stream());
    future->markCompleted(c10::IValue(std::move(outputs)));
  }

 private:
  roundelay::Enqueued enqueued_;
  milliseconds timeout_;
};

} // namespace
} // namespace torch::comms
