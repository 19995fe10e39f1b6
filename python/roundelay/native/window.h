// Windows of tensors in memory of the host or of a GPU, for the classes of windows of torch and of torchcomms.

#pragma once

#include "stream.h"
#include "tensors.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <chrono>
#include <optional>

namespace roundelay {

// A tensor that the other ranks put to; `check` throws the error of a call that has failed. On a GPU operations go into the
// current stream.
class TensorWindow {
 public:
  explicit TensorWindow(std::function<void(int32_t)> check) : check_(std::move(check)) {}
  TensorWindow(const TensorWindow&) = delete;
  TensorWindow& operator=(const TensorWindow&) = delete;
  ~TensorWindow() {
    drop();
  }

  // Ends this rank's part, if it was not deregistered.
  void drop() {
    rl().rl_window_drop(std::exchange(window_, nullptr));
  }

  // Collective; `comm` is of the tensor's device. The tensor lives as long as it is registered.
  void add(const rl_comm* comm, const Tensor& tensor) {
    ROUNDELAY_CHECK(
        Error, window_ == nullptr, "roundelay: the window has a tensor already: call tensor_deregister first");
    ROUNDELAY_CHECK(
        ValueError, is_plain(tensor), "roundelay: the tensor of a window must be contiguous, and its elements as they "
        "are read: pass a copy of it, as .contiguous() or .resolve_conj().resolve_neg()");
    const c10::OptionalDeviceGuard guard(gpu_of(tensor));
    if (tensor.is_cuda()) {
      // The first access of a peer comes after what the caller's stream still does to the tensor.
      current_stream(tensor.device()).synchronize();
    }
    const rl_options options = options_of(tensor, std::chrono::milliseconds(0));
    check_(rl().rl_window_create(
        comm, tensor.data_ptr(), tensor.nbytes(), RL_I8, RL_READ | RL_WRITE | RL_ATOMICS, &options, &window_));
    tensor_ = tensor;
  }

  // Collective: no peer writes to the tensor any more.
  void remove() {
    check_(rl().rl_window_free(std::exchange(window_, nullptr)));
    tensor_.reset();
  }

  // The tensor may be overwritten when it returns, on a GPU by what follows in the stream; the peer sees it after a
  // signal. Returns what was read, which an operation in a stream needs until that is done.
  Tensor put(const Tensor& tensor, uint32_t peer, uint64_t at, std::chrono::milliseconds timeout) {
    ROUNDELAY_CHECK(
        ValueError, tensor.scalar_type() == tensor_->scalar_type(), "roundelay: put: the tensor is of ",
        tensor.scalar_type(), ", the window of ", tensor_->scalar_type());
    ROUNDELAY_CHECK(
        ValueError, tensor.device() == tensor_->device(), "roundelay: put: the tensor is on ", tensor.device(),
        ", the window on ", tensor_->device());
    const c10::OptionalDeviceGuard guard(gpu_of(tensor));
    CallMemory memory;
    Tensor data = memory.readable(tensor);
    const rl_options options = options_of(tensor, timeout);
    check_(rl().rl_window_put(
        window_, data.data_ptr(), data.nbytes(), peer, at * tensor.element_size(), &options, nullptr));
    return data;
  }

  void signal(uint32_t peer) {
    const c10::OptionalDeviceGuard guard(gpu_of(*tensor_));
    const rl_options options = options_of(*tensor_, std::chrono::milliseconds(0));
    check_(rl().rl_window_signal(window_, peer, &options));
  }

  // Has the current stream of a GPU wait for a signal of a peer, and take it.
  void enqueue_wait(uint32_t peer, std::chrono::milliseconds limit) {
    const c10::OptionalDeviceGuard guard(gpu_of(*tensor_));
    const rl_options options = options_of(*tensor_, limit);
    check_(rl().rl_window_wait_signal(window_, peer, &options));
  }

  // Waits for a signal of a peer, and takes it: for `limit`, or as long as the window waits where that is 0. Returns
  // false once the time is over. Calls `look` now and then.
  template <class Look>
  bool wait_signal(uint32_t peer, std::chrono::milliseconds limit, Look look) {
    if (limit.count() <= 0) {
      check_(rl().rl_window_wait_signal(window_, peer, nullptr));
      return true;
    }
    const auto until = std::chrono::steady_clock::now() + limit;
    for (int looks = 1;; ++looks) {
      if (take_signal(peer)) {
        return true;
      }
      if (std::chrono::steady_clock::now() >= until) {
        return false;
      }
      if (looks % 1000 == 0) {
        look();
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  // Takes a signal of a peer if there is one; returns whether.
  bool take_signal(uint32_t peer) {
    int32_t taken = 0;
    check_(rl().rl_window_take_signal(window_, peer, &taken));
    return taken != 0;
  }

  void check_there() const {
    ROUNDELAY_CHECK(
        Error, window_ != nullptr, "roundelay: the window has no tensor: call tensor_register on all ranks first");
  }
  const rl_window* get() const {
    return window_;
  }
  const std::optional<Tensor>& tensor() const {
    return tensor_;
  }
  bool is_on_gpu() const {
    return tensor_ && tensor_->is_cuda();
  }

 private:
  // The library makes its GPU the current one of the thread; the caller's is another, perhaps.
  static std::optional<c10::Device> gpu_of(const Tensor& tensor) {
    return tensor.is_cuda() ? std::optional<c10::Device>(tensor.device()) : std::nullopt;
  }

  static rl_options options_of(const Tensor& tensor, std::chrono::milliseconds timeout) {
    rl_options options{};
    options.timeout_ms = std::max<int64_t>(timeout.count(), 0);
    if (tensor.is_cuda()) {
      options.memory = RL_CUDA;
      options.stream = given_stream(current_stream(tensor.device()).native_handle());
    }
    return options;
  }

  std::function<void(int32_t)> check_;
  rl_window* window_ = nullptr;
  std::optional<Tensor> tensor_;
};

} // namespace roundelay
