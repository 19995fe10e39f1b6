// Windows: tensors in host memory that the other ranks put to, by torch's interface for it (2.15 and later).

#pragma once

#include "calls.h"

#ifdef C10D_BACKEND_HAS_WINDOW
#include <torch/csrc/distributed/c10d/Window.hpp>

namespace roundelay {

class Window : public c10d::Window {
 public:
  Window(std::shared_ptr<rl_comm> comm, int rank, Milliseconds limit, const std::optional<Tensor>& tensor)
      : comm_(std::move(comm)), rank_(rank), limit_(limit) {
    if (tensor) {
      tensor_register(*tensor, true);
    }
  }

  ~Window() override {
    WithoutInterpreter others;
    rl().rl_window_drop(window_);
  }

  // Collective. The tensor lives as long as it is registered.
  void tensor_register(const Tensor& tensor, bool) override {
    ROUNDELAY_CHECK(Error, window_ == nullptr, "roundelay: the window has a tensor already: deregister that first");
    ROUNDELAY_CHECK(
        NotImplementedError, tensor.is_cpu(), "roundelay: windows of tensors on ", tensor.device(), " are not there yet: use the CPU");
    ROUNDELAY_CHECK(ValueError, tensor.is_contiguous(), "roundelay: the tensor of a window must be contiguous");
    {
      WithoutInterpreter others;
      check(rl().rl_window_create(
          comm_.get(), tensor.data_ptr(), tensor.nbytes(), RL_I8, RL_READ | RL_WRITE | RL_ATOMICS, nullptr, &window_));
    }
    tensor_ = tensor;
  }

  // Collective: no peer writes to the tensor any more.
  void tensor_deregister() override {
    there();
    WithoutInterpreter others;
    check(rl().rl_window_free(std::exchange(window_, nullptr)));
    tensor_.reset();
  }

  // The tensor may be overwritten when it returns; the peer sees it after a signal.
  WorkPtr put(const Tensor& tensor, int64_t peer, int64_t at, bool, const c10d::PutOptions& opts) override {
    there();
    ROUNDELAY_CHECK(
        ValueError, tensor.scalar_type() == tensor_->scalar_type(), "roundelay: put: the tensor is of ", tensor.scalar_type(),
        ", the window of ", tensor_->scalar_type());
    ROUNDELAY_CHECK(
        NotImplementedError, tensor.is_cpu(), "roundelay: put: tensors on ", tensor.device(), " are not there yet: use the CPU");
    ROUNDELAY_CHECK(ValueError, at >= 0, "roundelay: put: elements are counted from 0, not from ", at);
    Tensor data = readable(tensor);
    WithoutInterpreter others;
    rl_options options{};
    options.timeout_ms = std::max<int64_t>(opts.timeout.count(), 0);
    check(rl().rl_put(
        window_, data.data_ptr(), data.nbytes(), static_cast<uint32_t>(peer), at * tensor.element_size(), &options,
        nullptr));
    return done();
  }

  // The peer's tensor as it is mapped here, if that is one of `allocate_tensor`. It is part of the window as long as
  // that is registered.
  Tensor map_remote_tensor(int64_t peer) override {
    there();
    WithoutInterpreter others;
    auto of = static_cast<uint32_t>(peer);
    uint64_t bytes = 0;
    void* address = nullptr;
    check(rl().rl_window_attributes(window_, of, &bytes, nullptr));
    check(rl().rl_window_map_remote(window_, of, &address));
    // What all ranks have registered may differ in length.
    bool is_alike = bytes == tensor_->nbytes();
    std::vector<int64_t> shape = {static_cast<int64_t>(bytes / tensor_->element_size())};
    auto kept = c10::intrusive_ptr<Window>::reclaim_copy(this);
    return at::from_blob(
        address, is_alike ? tensor_->sizes() : at::IntArrayRef(shape), [kept](void*) {}, tensor_->options());
  }

  WorkPtr signal(int64_t peer, bool, const c10d::SignalOptions&) override {
    there();
    WithoutInterpreter others;
    check(rl().rl_signal(window_, static_cast<uint32_t>(peer), nullptr));
    return done();
  }

  WorkPtr wait_signal(int64_t peer, bool async, const c10d::WaitSignalOptions& opts) override {
    there();
    Milliseconds limit = opts.timeout.count() > 0 ? opts.timeout : Milliseconds(0);
    auto work = c10::make_intrusive<Signalled>(
        c10::intrusive_ptr<Window>::reclaim_copy(this), static_cast<uint32_t>(peer), limit);
    if (!async) {
      work->wait(kNoTimeout);
    }
    return work;
  }

  c10d::WindowAttr get_attr(int64_t) override {
    there();
    return {};
  }

 private:
  // A signal that is waited for: taken once.
  class Signalled : public Base {
   public:
    Signalled(c10::intrusive_ptr<Window> window, uint32_t peer, Milliseconds limit)
        : Base(window->rank_, c10d::OpType::UNKNOWN, {}), window_(std::move(window)), peer_(peer), limit_(limit) {}

    // False while another thread waits for it.
    bool isCompleted() override {
      std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
      return lock.owns_lock() && (taken_ || look());
    }

    bool wait(Milliseconds given) override {
      WithoutInterpreter others;
      std::lock_guard<std::mutex> lock(mutex_);
      Milliseconds limit = given.count() > 0 ? given : limit_;
      if (!taken_) {
        window_->there();
        taken_ = roundelay::wait_signal(
            window_->window_, peer_, limit, [this](int32_t status) { window_->check(status); }, &check_signals);
      }
      ROUNDELAY_CHECK(DistBackendError, taken_, "roundelay: Timed out waiting ", limit.count(), "ms for a signal of rank ", peer_,
          ": see whether it calls signal");
      return true;
    }

   private:
    bool look() {
      window_->there();
      int32_t taken = 0;
      window_->check(rl().rl_take_signal(window_->window_, peer_, &taken));
      taken_ = taken != 0;
      return taken_;
    }

    c10::intrusive_ptr<Window> window_;
    uint32_t peer_;
    Milliseconds limit_;
    std::mutex mutex_;
    bool taken_ = false;
  };

  WorkPtr done() const {
    return c10::make_intrusive<Done>(rank_, c10d::OpType::UNKNOWN, Tensors{});
  }
  void there() const {
    ROUNDELAY_CHECK(Error, window_ != nullptr, "roundelay: the window has no tensor: call tensor_register on all ranks first");
  }
  void check(int32_t status) const {
    if (status != 0) {
      std::rethrow_exception(exception_of(last_error(), limit_));
    }
  }

  std::shared_ptr<rl_comm> comm_;
  int rank_;
  Milliseconds limit_;
  rl_window* window_ = nullptr;
  std::optional<Tensor> tensor_;
};

} // namespace roundelay
#endif
