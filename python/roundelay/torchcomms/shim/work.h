// Work: operations in the background, and operations in a stream of a GPU.

#pragma once

#include "errors.h"

#include "../../native/background.h"
#include "../../native/stream.h"

#include <condition_variable>

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
  Work(std::unique_ptr<roundelay::BackgroundCalls> calls, milliseconds timeout, std::shared_ptr<Listener> listener)
      : calls_(std::move(calls)), timeout_(timeout), listener_(std::move(listener)) {}

  // Marks the work as begun. It lives until the operation has ended, dropped or not.
  void start() {
    setStatus(WorkStatus::INPROGRESS);
    c10::raw::intrusive_ptr::incref(this);
    listener_->begin();
    if (rl().rl_work_on_done(calls_->works.back(), &Work::done, this) != 0) {
      listener_->end();
      c10::raw::intrusive_ptr::decref(this);
      refuse(roundelay::last_error().text);
    }
  }

  void wait() override {
    runWaitPreHooks();
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
      work->settle();
      const std::shared_ptr<Listener> listener = work->listener_;
      work.reset();
      listener->end();
    });
  }

  // Waits for the end, and takes note of it.
  void settle() {
    std::call_once(settled_, [this] {
      auto status = WorkStatus::COMPLETED;
      if (const auto error = calls_->finish()) {
        error_ = text_of(*error);
        status = error->kind == RL_KIND_TIMEOUT ? WorkStatus::TIMEDOUT : WorkStatus::ERROR;
      }
      calls_->memory = {};
      setStatus(status);
    });
  }

  std::unique_ptr<roundelay::BackgroundCalls> calls_;
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
