// Windows: tensors that the other ranks put to, in memory of the host or of a GPU, by torch's interface for it (2.15 and
// later).

#pragma once

#include "../../native/window.h"
#include "calls.h"

#ifdef C10D_BACKEND_HAS_WINDOW
#include <torch/csrc/distributed/c10d/Window.hpp>

namespace roundelay {

class Window : public c10d::Window {
 public:
  // Returns the communicator of a device, which lives as long as the pointer.
  using CommOf = std::function<std::shared_ptr<rl_comm>(at::Device)>;

  Window(CommOf comm_of, int rank, Milliseconds limit, const std::optional<Tensor>& tensor)
      : comm_of_(std::move(comm_of)),
        rank_(rank),
        limit_(limit),
        window_([this](int32_t status) { check(status); }) {
    if (tensor) {
      tensor_register(*tensor, true);
    }
  }

  ~Window() override {
    WithoutInterpreter others;
    window_.drop();
  }

  void tensor_register(const Tensor& tensor, bool) override {
    WithoutInterpreter others;
    comm_ = comm_of_(tensor.device());
    window_.add(comm_.get(), tensor);
  }

  void tensor_deregister() override {
    window_.check_there();
    WithoutInterpreter others;
    window_.remove();
  }

  WorkPtr put(const Tensor& tensor, int64_t peer, int64_t at, bool, const c10d::PutOptions& opts) override {
    window_.check_there();
    ROUNDELAY_CHECK(ValueError, at >= 0, "roundelay: put: elements are counted from 0, not from ", at);
    WithoutInterpreter others;
    return done({window_.put(tensor, static_cast<uint32_t>(peer), at, opts.timeout)});
  }

  // The peer's tensor as it is mapped here, if that is one of `allocate_tensor` or on a GPU of this host. It is part of the
  // window as long as that is registered.
  Tensor map_remote_tensor(int64_t peer) override {
    window_.check_there();
    WithoutInterpreter others;
    auto of = static_cast<uint32_t>(peer);
    uint64_t bytes = 0;
    void* address = nullptr;
    check(rl().rl_window_attributes(window_.get(), of, &bytes, nullptr));
    check(rl().rl_window_map_remote(window_.get(), of, &address));
    const Tensor& own = *window_.tensor();
    // What all ranks have registered may differ in length.
    bool is_alike = bytes == own.nbytes();
    std::vector<int64_t> shape = {static_cast<int64_t>(bytes / own.element_size())};
    auto kept = c10::intrusive_ptr<Window>::reclaim_copy(this);
    // Memory of another GPU is the driver's there, and this one's for the kernels that are started here.
    return at::for_blob(address, is_alike ? own.sizes() : at::IntArrayRef(shape))
        .deleter([kept](void*) {})
        .options(own.options())
        .target_device(own.device())
        .make_tensor();
  }

  WorkPtr signal(int64_t peer, bool, const c10d::SignalOptions&) override {
    window_.check_there();
    WithoutInterpreter others;
    window_.signal(static_cast<uint32_t>(peer));
    return done({});
  }

  WorkPtr wait_signal(int64_t peer, bool async, const c10d::WaitSignalOptions& opts) override {
    window_.check_there();
    Milliseconds limit = opts.timeout.count() > 0 ? opts.timeout : Milliseconds(0);
    if (window_.is_on_gpu()) {
      WithoutInterpreter others;
      window_.enqueue_wait(static_cast<uint32_t>(peer), limit);
      return done({});
    }
    auto work = c10::make_intrusive<Signalled>(
        c10::intrusive_ptr<Window>::reclaim_copy(this), static_cast<uint32_t>(peer), limit);
    if (!async) {
      work->wait(kNoTimeout);
    }
    return work;
  }

  c10d::WindowAttr get_attr(int64_t) override {
    window_.check_there();
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
        window_->window_.check_there();
        taken_ = window_->window_.wait_signal(peer_, limit, &check_signals);
      }
      ROUNDELAY_CHECK(DistBackendError, taken_, "roundelay: Timed out waiting ", limit.count(), "ms for a signal of rank ", peer_,
          ": see whether it calls signal");
      return true;
    }

   private:
    bool look() {
      window_->window_.check_there();
      taken_ = window_->window_.take_signal(peer_);
      return taken_;
    }

    c10::intrusive_ptr<Window> window_;
    uint32_t peer_;
    Milliseconds limit_;
    std::mutex mutex_;
    bool taken_ = false;
  };

  // On a GPU what was put into the current stream has ended when that has; it keeps tensors until then.
  WorkPtr done(Tensors kept) const {
    if (window_.is_on_gpu()) {
      return c10::make_intrusive<OnStream>(
          rank_, c10d::OpType::UNKNOWN, Tensors{}, std::move(kept), window_.tensor()->device(), true);
    }
    return c10::make_intrusive<Done>(rank_, c10d::OpType::UNKNOWN, Tensors{});
  }
  void check(int32_t status) const {
    if (status != 0) {
      std::rethrow_exception(exception_of(last_error(), limit_));
    }
  }

  CommOf comm_of_;
  std::shared_ptr<rl_comm> comm_;
  int rank_;
  Milliseconds limit_;
  TensorWindow window_;
};

} // namespace roundelay
#endif
