// Calls of the library that go on in the background.

#pragma once

#include "tensors.h"

#include <optional>

namespace roundelay {

// The works of one operation, and its memory.
struct BackgroundCalls {
  std::vector<rl_work*> works;
  CallMemory memory;

  BackgroundCalls() = default;
  BackgroundCalls(const BackgroundCalls&) = delete;
  BackgroundCalls& operator=(const BackgroundCalls&) = delete;
  ~BackgroundCalls() {
    for (rl_work* work : works) {
      rl().rl_work_free(work);
    }
  }

  // Waits for the end of all, and makes the copies that are due. Returns the first error.
  std::optional<Error> finish() const {
    std::optional<Error> failed;
    for (rl_work* work : works) {
      if (rl().rl_work_wait(work, UINT64_MAX, nullptr) != 0 && !failed) {
        failed = last_error();
      }
    }
    if (failed) {
      return failed;
    }
    try {
      memory.finish();
    } catch (const c10::Error& error) {
      return not_copied(error.what_without_backtrace());
    } catch (const std::exception& error) {
      return not_copied(error.what());
    }
    return std::nullopt;
  }

 private:
  // Nothing is wrong with the communicator.
  static Error not_copied(const char* why) {
    Error error;
    error.kind = RL_KIND_USAGE;
    error.text = words("a result could not be copied to its tensor: ", why);
    return error;
  }
};

} // namespace roundelay
