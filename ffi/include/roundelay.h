// The C interface of roundelay: collective operations between the ranks of a job.
//
// Functions return RL_SUCCESS, or the number of an error's code (703 for RL0703, a page in docs/errors), whose text
// rl_last_error has. Made by cbindgen from ffi/src/abi; docs/c.md has the rest.

#ifndef ROUNDELAY_H
#define ROUNDELAY_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// The version of this interface, which the name of the library ends with (`libroundelay.so.1`). Within one functions
// are only added, and fields only at the end of `rl_options`.
#define RL_ABI_VERSION 1

// The rank of `rl_recv` that stands for any.
#define RL_ANY_RANK UINT32_MAX

// For `rl_suspend`: connections for data between hosts go too, and not memory alone.
#define RL_SUSPEND_CONNECTIONS 1

// The right to get.
#define RL_READ 1

// The right to put.
#define RL_WRITE 2

// The right to accumulate, and to use words atomically.
#define RL_ATOMICS 4

// An algorithm of a text or a file.
typedef struct rl_algorithm rl_algorithm;

// Memory of `rl_alloc`.
typedef struct rl_allocation rl_allocation;

// One rank's handle on the others. Any thread may use it.
typedef struct rl_comm rl_comm;

// A place at which peers meet this process. Any thread may use it.
typedef struct rl_endpoint rl_endpoint;

// The connection of two endpoints. Any thread may use it.
typedef struct rl_link rl_link;

// Memory of this process that peers may use.
typedef struct rl_region rl_region;

// A region of a peer. Any thread may use it.
typedef struct rl_remote rl_remote;

// A window. Any thread may use it.
//
// One of GPU memory was made with `RL_CUDA` in the options, on a communicator of `rl_cuda`. Its operations are put
// into the stream of their options and return at once, so `work` is NULL; their buffers are of the GPU too, and
// `RL_CUDA` says so. It has no `rl_window_take_signal` and `rl_window_withdraw`, and no `rl_window_accumulate` to a
// rank on another host.
typedef struct rl_window rl_window;

// An operation in the background. It goes on when this is freed.
typedef struct rl_work rl_work;

// The outcome of a call: 0, or the number of an error's code. The texts of algorithms have further codes, below 700
// (`docs/errors`).
typedef enum rl_status {
  // The call has succeeded, or goes on in the background.
  RL_SUCCESS = 0,
  // A plan is damaged or of another version.
  RL_ERROR_PLAN_DAMAGED = 701,
  // Ranks hold different plans.
  RL_ERROR_PLAN_MISMATCH = 702,
  // A wait passed its deadline.
  RL_ERROR_TIMEOUT = 703,
  // A rank is gone.
  RL_ERROR_LOST_RANK = 704,
  // Shared memory could not be had.
  RL_ERROR_MEMORY = 705,
  // Valid, but not supported by this algorithm, device or build.
  RL_ERROR_UNSUPPORTED = 706,
  // A file cannot be read.
  RL_ERROR_FILE = 708,
  // The ranks could not come together.
  RL_ERROR_START = 709,
  // CUDA cannot be used, or failed.
  RL_ERROR_CUDA = 710,
  // The arguments of a call are wrong.
  RL_ERROR_USAGE = 712,
  // A hint, the tuned table or the topology file is wrong.
  RL_ERROR_SETTINGS = 713,
  // Started work panicked, or lost its thread.
  RL_ERROR_WORK = 714,
  // The program ended the communicator.
  RL_ERROR_ABORTED = 715,
  // A window does not allow an access.
  RL_ERROR_WINDOW = 716,
  // A window was used after its end.
  RL_ERROR_WINDOW_OVER = 717,
  // A forked process used what its parent made.
  RL_ERROR_FORKED = 718,
} rl_status;

// The type of elements in memory: `RL_F16` to `RL_BOOL`.
typedef enum rl_dtype {
  // IEEE binary16.
  RL_F16 = 0,
  // bfloat16.
  RL_BF16 = 1,
  // IEEE binary32.
  RL_F32 = 2,
  // IEEE binary64.
  RL_F64 = 3,
  // Signed, one byte.
  RL_I8 = 4,
  // Unsigned, one byte.
  RL_U8 = 5,
  // Signed, four bytes.
  RL_I32 = 6,
  // Unsigned, four bytes.
  RL_U32 = 7,
  // Signed, eight bytes.
  RL_I64 = 8,
  // Unsigned, eight bytes.
  RL_U64 = 9,
  // One byte, 0 or 1.
  RL_BOOL = 10,
} rl_dtype;

// The operator of a reduction: `RL_SUM` to `RL_XOR`.
typedef enum rl_op {
  // The sum; integers wrap.
  RL_SUM = 0,
  // The product; integers wrap.
  RL_PROD = 1,
  // The least value; NaN if any operand is NaN.
  RL_MIN = 2,
  // The greatest value; NaN if any operand is NaN.
  RL_MAX = 3,
  // The sum divided by the number of ranks; integers truncate towards zero.
  RL_AVG = 4,
  // The sum of operands that are each multiplied by the factor of the options.
  RL_PREMUL_SUM = 5,
  // Bitwise and, of integers and `RL_BOOL`.
  RL_AND = 6,
  // Bitwise or, of integers and `RL_BOOL`.
  RL_OR = 7,
  // Bitwise exclusive or, of integers and `RL_BOOL`.
  RL_XOR = 8,
} rl_op;

// The kind of memory that the buffers of a call are in.
typedef enum rl_memory {
  // Memory of this host.
  RL_HOST = 0,
  // Memory of this rank's GPU; the communicator is one of `rl_cuda`, or of `rl_cuda_mixed` where the rank has one.
  RL_CUDA = 1,
} rl_memory;

// Options of one call. All bytes 0 is what the communicator has: zero the structure, then set what is needed.
typedef struct {
  // `sizeof(rl_options)` of the header that the caller was compiled with, or 0 for that of version 1 of the
  // interface.
  uint64_t size;
  // The longest time without progress, in milliseconds.
  uint64_t timeout_ms;
  // Hints as `key=value,key=value`, for this call only.
  const char *hints;
  // The kind of memory of all buffers.
  rl_memory memory;
  // Other than 0 if kernels of others are to run beside a call on a GPU: it occupies a quarter of the
  // multiprocessors at most, unless the hint `max_sms` says otherwise.
  int32_t overlaps;
  // The CUDA stream (`CUstream`) that the call is put into; the communicator's own if NULL.
  void *stream;
  // The factor of `RL_PREMUL_SUM`.
  double factor;
} rl_options;

// A buffer of a list: elements at an address.
typedef struct {
  // The address of the first element; it may be NULL if there is none.
  void *ptr;
  // The number of elements.
  uint64_t count;
} rl_buffer;

// A store in which the ranks of a job leave notes for each other, as torch's `Store` or a PMI server.
typedef struct {
  // The first argument of both functions.
  void *context;
  // Leaves a note of `len` bytes, which others can read when it returns. Returns 0, or another number if it failed.
  int32_t (*set)(void *context, const char *key, const void *value, uint64_t len);
  // Waits for a note, at most that many milliseconds, writes it into a buffer of `capacity` bytes and its length to
  // `len`. Returns 0, or another number if the note did not come or is too long.
  int32_t (*get)(void *context, const char *key, uint64_t timeout_ms, void *value, uint64_t capacity, uint64_t *len);
} rl_store;

// The kind of an error.
typedef enum rl_kind {
  // None of the other kinds.
  RL_KIND_OTHER = 0,
  // A rank did not answer in time.
  RL_KIND_TIMEOUT = 1,
  // A rank is gone.
  RL_KIND_LOST_RANK = 2,
  // Ranks do not make the same call, or a message does not fit its receive.
  RL_KIND_MISMATCH = 3,
  // This rank stopped because another one failed, or because the job was ended.
  RL_KIND_ABORTED = 4,
  // There is no memory.
  RL_KIND_MEMORY = 5,
  // The CUDA driver failed.
  RL_KIND_CUDA = 6,
  // Valid, but not supported by this build or device.
  RL_KIND_UNSUPPORTED = 7,
  // The call is wrong; nothing has moved.
  RL_KIND_USAGE = 8,
  // A hint or a setting is wrong.
  RL_KIND_SETTINGS = 9,
  // The compiler refused an algorithm.
  RL_KIND_REFUSED = 10,
  // The ranks did not come together.
  RL_KIND_START = 11,
  // A window does not allow an access, or is over; nothing has moved.
  RL_KIND_WINDOW = 12,
} rl_kind;

// An error of the calling thread.
typedef struct {
  // The number of its code: 703 for `RL0703`, a page in `docs/errors`; 0 if there was none.
  int32_t code;
  // The rank that reports, or -1.
  int32_t rank;
  // The rank that is to blame, or that was waited for, or -1.
  int32_t peer;
  // The kind of the error, `RL_KIND_OTHER` and so on: that of this rank's own error, where the code may be that
  // of its cause on another one.
  rl_kind kind;
  // The step of the algorithm, or -1.
  int32_t step;
  // The error in words, valid until the next call on this thread.
  const char *text;
  // `file:line:column` of the statement of the algorithm, or NULL; as long.
  const char *source;
} rl_error;

// A message of a batch.
typedef struct {
  // The elements that are sent, or the place for those that are received.
  void *ptr;
  // The number of elements.
  uint64_t count;
  // Their type.
  rl_dtype dtype;
  // The rank at the other end.
  uint32_t peer;
  // 1 if the message is sent, 0 if it is received.
  int32_t is_send;
} rl_message;

// The memory that a rank of a communicator holds, in bytes, by kind. Kinds do not overlap, but for `mapped`, which are
// addresses, and `arena`, which is a part of `shared`.
typedef struct {
  // The size of this structure, as the caller has it: no more is written. Figures that the library does not have are
  // 0.
  uint64_t size;
  // 1 if the communicator is suspended, else 0.
  uint64_t suspended;
  // Shared memory that all ranks of this host have reserved together.
  uint64_t shared;
  // This rank's arena in use: buffers, and what calls keep for themselves.
  uint64_t arena;
  // Addresses at which this rank has mapped shared memory.
  uint64_t mapped;
  // Memory for messages of calls on their way through sockets.
  uint64_t staging;
  // The same for messages with tags and served windows.
  uint64_t message;
  // Buffers with which connections are encrypted.
  uint64_t encryption;
  // Memory that RDMA devices keep in place.
  uint64_t pinned;
  // Memory of the GPU that suspending gives back.
  uint64_t device;
  // Memory of the GPU that stays.
  uint64_t device_buffer;
  // Host memory that is kept in place for the GPU.
  uint64_t device_pinned;
} rl_memory_figures;

// A function that is called when an operation has ended, with 0 if it succeeded, 703 if it timed out, and -1 if it
// failed otherwise: `rl_work_wait` then has the error.
typedef void (*rl_done)(void *context, int32_t status);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Reads the first algorithm of a text; `name` stands in messages. What depends on the ranks is proved when it is run
// or installed.
//
// `name` and `source` are texts, `out` is a place for a pointer.
rl_status rl_algorithm_parse(const char *name, const char *source, rl_algorithm **out);

// Reads the first algorithm of a file.
//
// `path` is a text, `out` a place for a pointer.
rl_status rl_algorithm_load(const char *path, rl_algorithm **out);

// Gives an algorithm of the same text by its name, with arguments for its parameters if it has some:
// `k_nomial(k = 4)`. Parameters without an argument have their default. The first algorithm stays as it is, and both
// are freed.
//
// `algorithm` is live, `name` is a text, `out` is a place for a pointer.
rl_status rl_algorithm_named(const rl_algorithm *algorithm, const char *name, rl_algorithm **out);

// Executes an algorithm on an output and an input of that many elements each; in place if `input` is NULL, on
// `output`.
//
// `comm` and `algorithm` are live. The buffers hold that many elements of the type until the operation has ended;
// meanwhile nothing else writes them, nor reads the output. `options` is NULL or valid, `work` NULL or a place for a
// pointer.
rl_status rl_run(const rl_comm *comm,
                 const rl_algorithm *algorithm,
                 void *output,
                 uint64_t output_count,
                 const void *input,
                 uint64_t input_count,
                 rl_dtype dtype,
                 rl_op op,
                 const rl_options *options,
                 rl_work **work);

// Has an algorithm serve all calls of its collective. Collective: it takes effect only if all ranks bring the same.
//
// `comm` and `algorithm` are live.
rl_status rl_install(const rl_comm *comm, const rl_algorithm *algorithm);

// Has the algorithm library serve a collective again. Collective.
//
// `comm` is live, `collective` a text.
rl_status rl_uninstall(const rl_comm *comm, const char *collective);

// Frees an algorithm. NULL is ignored; a communicator on which it was installed keeps it.
//
// `algorithm` is NULL or live, and is not used any more.
void rl_algorithm_free(rl_algorithm *algorithm);

// Allocates memory, zeroed and aligned to a page, that all ranks of this host map: operations on it are not copied on
// the way, windows of it are mapped. It is an ordinary part of this process's memory otherwise, and may live longer
// than the communicator. Not collective. What its machine or the rank's share of it has no room for is RL0705.
//
// `comm` is live, `allocation` and `address` are places for pointers.
rl_status rl_alloc(const rl_comm *comm, uint64_t bytes, rl_allocation **allocation, void **address);

// Frees memory of `rl_alloc`. NULL is ignored.
//
// `allocation` is NULL or live, and no operation or window uses it any more.
rl_status rl_allocation_free(rl_allocation *allocation);

// Allocates memory of a GPU as `cudaMalloc` does, for the pools of other libraries: windows of it can be made, and
// peers map it, where those of the library's own allocator cannot. Returns NULL if there is no room for it, no such
// GPU or no driver; `rl_last_error` says which. The arguments are those of an allocator of torch
// (`CUDAPluggableAllocator`); the stream is not used.
void *rl_cuda_alloc(ptrdiff_t bytes, int device, void *_stream);

// Frees memory of `rl_cuda_alloc`. NULL is ignored. What fails is in `rl_last_error`.
//
// `address` is NULL or of `rl_cuda_alloc` for this device, and nothing uses the memory any more.
void rl_cuda_free(void *address, ptrdiff_t _bytes, int device, void *_stream);

// Reduces the vectors of all ranks, each of `count` elements, and leaves the result on every rank.
//
// `comm` is a live communicator. `data` hold that many elements of the type until the operation has ended; meanwhile
// nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a
// pointer.
rl_status rl_all_reduce(const rl_comm *comm,
                        void *data,
                        uint64_t count,
                        rl_dtype dtype,
                        rl_op op,
                        const rl_options *options,
                        rl_work **work);

// Reduces the vectors of all ranks, at most 8, in memory of this host, and goes on if one of them ends meanwhile. All
// others end with the same result, and the same ranks counted: bit r of `*counted` is 1 if the contribution of rank r
// is in it. If one is missing the result holds, and the ranks that are left call `rl_shrink` before they go on.
//
// `comm` is a live communicator. `data` hold that many elements of the type, and nothing else uses them meanwhile;
// `counted` is a place for a number.
rl_status rl_tolerant_all_reduce(const rl_comm *comm,
                                 void *data,
                                 uint64_t count,
                                 rl_dtype dtype,
                                 rl_op op,
                                 uint64_t *counted);

// Reduces the inputs of all ranks, each of `count` elements, into the output of every rank.
//
// `comm` is a live communicator. The buffers hold that many elements of the type until the operation has ended;
// meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place
// for a pointer.
rl_status rl_all_reduce_into(const rl_comm *comm,
                             void *output,
                             const void *input,
                             uint64_t count,
                             rl_dtype dtype,
                             rl_op op,
                             const rl_options *options,
                             rl_work **work);

// Reduces the inputs of all ranks, each of `count` elements, into the output of the root; elsewhere `output` may be
// NULL.
//
// `comm` is a live communicator. The buffers hold that many elements of the type until the operation has ended;
// meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place
// for a pointer.
rl_status rl_reduce(const rl_comm *comm,
                    void *output,
                    const void *input,
                    uint64_t count,
                    rl_dtype dtype,
                    rl_op op,
                    uint32_t root,
                    const rl_options *options,
                    rl_work **work);

// Copies the root's vector of `count` elements to every rank.
//
// `comm` is a live communicator. `data` hold that many elements of the type until the operation has ended; meanwhile
// nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a
// pointer.
rl_status rl_broadcast(const rl_comm *comm,
                       void *data,
                       uint64_t count,
                       rl_dtype dtype,
                       uint32_t root,
                       const rl_options *options,
                       rl_work **work);

// Gathers the inputs of all ranks, each of `count` elements, in the output of every rank, one after the other: it has
// `count` elements for each rank.
//
// `comm` is a live communicator. The buffers hold that many elements of the type until the operation has ended;
// meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place
// for a pointer.
rl_status rl_all_gather(const rl_comm *comm,
                        void *output,
                        const void *input,
                        uint64_t count,
                        rl_dtype dtype,
                        const rl_options *options,
                        rl_work **work);

// Gathers the input of rank r in `outputs[r]` of every rank. All have one length.
//
// `comm` is a live communicator. The buffers, of which `outputs` lists one for each rank, hold that many elements of
// the type until the operation has ended; meanwhile nothing else writes them, nor reads what is written. `options` is
// NULL or valid, `work` NULL or a place for a pointer.
rl_status rl_all_gather_list(const rl_comm *comm,
                             const rl_buffer *outputs,
                             const void *input,
                             uint64_t count,
                             rl_dtype dtype,
                             const rl_options *options,
                             rl_work **work);

// Gathers the inputs of all ranks, `counts[r]` elements of rank r, one after the other on every rank.
//
// `comm` is a live communicator. The buffers and the count of each rank hold that many elements of the type until the
// operation has ended; meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid,
// `work` NULL or a place for a pointer.
rl_status rl_all_gather_v(const rl_comm *comm,
                          void *output,
                          const void *input,
                          const uint64_t *counts,
                          rl_dtype dtype,
                          const rl_options *options,
                          rl_work **work);

// Reduces the inputs, which have `count` elements for each rank, and leaves block r of the result in the output of
// rank r.
//
// `comm` is a live communicator. The buffers hold that many elements of the type until the operation has ended;
// meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place
// for a pointer.
rl_status rl_reduce_scatter(const rl_comm *comm,
                            void *output,
                            const void *input,
                            uint64_t count,
                            rl_dtype dtype,
                            rl_op op,
                            const rl_options *options,
                            rl_work **work);

// Reduces `inputs[r]` of all ranks into the output of rank r. All have one length.
//
// `comm` is a live communicator. The buffers, of which `inputs` lists one for each rank, hold that many elements of
// the type until the operation has ended; meanwhile nothing else writes them, nor reads what is written. `options` is
// NULL or valid, `work` NULL or a place for a pointer.
rl_status rl_reduce_scatter_list(const rl_comm *comm,
                                 void *output,
                                 const rl_buffer *inputs,
                                 uint64_t count,
                                 rl_dtype dtype,
                                 rl_op op,
                                 const rl_options *options,
                                 rl_work **work);

// Reduces the inputs and leaves block r of the result, of `counts[r]` elements, on rank r.
//
// `comm` is a live communicator. The buffers and the count of each rank hold that many elements of the type until the
// operation has ended; meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid,
// `work` NULL or a place for a pointer.
rl_status rl_reduce_scatter_v(const rl_comm *comm,
                              void *output,
                              const void *input,
                              const uint64_t *counts,
                              rl_dtype dtype,
                              rl_op op,
                              const rl_options *options,
                              rl_work **work);

// Sends block b of the input of rank a to block a of the output of rank b; a block has `count` elements. In place if
// `input` is `output`: on all ranks or on none.
//
// `comm` is a live communicator. The buffers hold that many elements of the type until the operation has ended;
// meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place
// for a pointer.
rl_status rl_all_to_all(const rl_comm *comm,
                        void *output,
                        const void *input,
                        uint64_t count,
                        rl_dtype dtype,
                        const rl_options *options,
                        rl_work **work);

// Sends `inputs[b]` of rank a to `outputs[a]` of rank b. All have one length.
//
// `comm` is a live communicator. The buffers, one for each rank in both lists, hold that many elements of the type
// until the operation has ended; meanwhile nothing else writes them, nor reads what is written. `options` is NULL or
// valid, `work` NULL or a place for a pointer.
rl_status rl_all_to_all_list(const rl_comm *comm,
                             const rl_buffer *outputs,
                             const rl_buffer *inputs,
                             rl_dtype dtype,
                             const rl_options *options,
                             rl_work **work);

// Sends block b of the input of rank a, of `input_counts[b]` elements, to block a of the output of rank b, of
// `output_counts[a]` elements there.
//
// `comm` is a live communicator. The buffers and the counts of each rank hold that many elements of the type until the
// operation has ended; meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid,
// `work` NULL or a place for a pointer.
rl_status rl_all_to_all_v(const rl_comm *comm,
                          void *output,
                          const uint64_t *output_counts,
                          const void *input,
                          const uint64_t *input_counts,
                          rl_dtype dtype,
                          const rl_options *options,
                          rl_work **work);

// Gathers the inputs of all ranks, each of `count` elements, in the output of the root, one after the other; elsewhere
// `output` may be NULL.
//
// `comm` is a live communicator. The buffers hold that many elements of the type until the operation has ended;
// meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place
// for a pointer.
rl_status rl_gather(const rl_comm *comm,
                    void *output,
                    const void *input,
                    uint64_t count,
                    rl_dtype dtype,
                    uint32_t root,
                    const rl_options *options,
                    rl_work **work);

// Gathers the input of rank r in `outputs[r]` of the root; elsewhere `outputs` may be NULL.
//
// `comm` is a live communicator. The buffers, of which `outputs` lists one for each rank, hold that many elements of
// the type until the operation has ended; meanwhile nothing else writes them, nor reads what is written. `options` is
// NULL or valid, `work` NULL or a place for a pointer.
rl_status rl_gather_list(const rl_comm *comm,
                         const rl_buffer *outputs,
                         const void *input,
                         uint64_t count,
                         rl_dtype dtype,
                         uint32_t root,
                         const rl_options *options,
                         rl_work **work);

// Sends block r of the root's input to the output of rank r, of `count` elements; elsewhere `input` may be NULL.
//
// `comm` is a live communicator. The buffers hold that many elements of the type until the operation has ended;
// meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place
// for a pointer.
rl_status rl_scatter(const rl_comm *comm,
                     void *output,
                     const void *input,
                     uint64_t count,
                     rl_dtype dtype,
                     uint32_t root,
                     const rl_options *options,
                     rl_work **work);

// Sends `inputs[r]` of the root to the output of rank r; elsewhere `inputs` may be NULL.
//
// `comm` is a live communicator. The buffers, of which `inputs` lists one for each rank, hold that many elements of
// the type until the operation has ended; meanwhile nothing else writes them, nor reads what is written. `options` is
// NULL or valid, `work` NULL or a place for a pointer.
rl_status rl_scatter_list(const rl_comm *comm,
                          void *output,
                          const rl_buffer *inputs,
                          uint64_t count,
                          rl_dtype dtype,
                          uint32_t root,
                          const rl_options *options,
                          rl_work **work);

// Waits until all ranks have called it.
//
// `comm` is a live communicator, `options` NULL or valid, `work` NULL or a place for a pointer.
rl_status rl_barrier(const rl_comm *comm, const rl_options *options, rl_work **work);

// Returns the version of the interface that this library has; `RL_ABI_VERSION` is that of the header.
uint32_t rl_abi_version(void);

// Returns the version of the library, as `0.1.0`.
const char *rl_version(void);

// Returns the address of a word that holds the number of the calling process, and 0 in every process that is forked
// from it, whose calls on what this one has made fail by RL0718. It is read as a whole, and stays where it is.
const uint32_t *rl_process_word(void);

// Makes all ranks of a job whose ranks are threads of this process: `ranks` communicators, written to `comms`.
//
// `comms` has room for that many pointers.
rl_status rl_local(uint32_t ranks, rl_comm **comms);

// Joins the job that a launcher started: roundelay's, torchrun, mpirun, srun, or a person (`docs/running.md`).
//
// `out` is a place for a pointer.
rl_status rl_from_env(rl_comm **out);

// Joins the other ranks, which are given the same store. Ranks may be threads of one process. Collective.
//
// `hints` is NULL, or as `transport=tcp,lazy=true`; they are those of the communicator's calls too. A `timeout_ms` of
// 0 is the default, 30 s.
//
// `store` has functions that can be called as described there, until this returns; `hints` is NULL or a text, `out`
// a place for a pointer.
rl_status rl_join(uint32_t rank,
                  uint32_t size,
                  const rl_store *store,
                  const char *hints,
                  uint64_t timeout_ms,
                  rl_comm **out);

// Makes a communicator of the same ranks with a GPU each; `device` counts as the driver does for this process, and
// -1 is the one of the rank's number modulo the number of GPUs. Collective.
//
// `hosts` is a live communicator, `out` a place for a pointer.
rl_status rl_cuda(const rl_comm *hosts, int32_t device, rl_comm **out);

// Makes a communicator of the same ranks, of which those have a GPU whose `has_gpu` is not 0, with `device` as for
// `rl_cuda`. Each rank calls with the memory that it has, with `RL_CUDA` or without. If all have a GPU, this is
// `rl_cuda`. Else calls on memory of a GPU are made by its host, and return when the result is there; there are no
// windows of GPU memory, and messages between a rank with a GPU and one without go through `rl_batch`. Collective.
//
// As `rl_cuda`.
rl_status rl_cuda_mixed(const rl_comm *hosts, int32_t has_gpu, int32_t device, rl_comm **out);

// Makes a communicator of `count` ranks in the order in which they are listed. A rank that lists none takes part and
// gets NULL. Collective over all ranks of `whole`.
//
// `whole` is a live communicator, `ranks` has `count` numbers, `out` is a place for a pointer.
rl_status rl_split(const rl_comm *whole, const uint32_t *ranks, uint32_t count, rl_comm **out);

// Returns the number of this rank; `UINT32_MAX` for NULL.
//
// `comm` is NULL or a live communicator.
uint32_t rl_rank(const rl_comm *comm);

// Returns the number of ranks; 0 for NULL.
//
// `comm` is NULL or a live communicator.
uint32_t rl_size(const rl_comm *comm);

// Sets the longest time without progress of the calls from now on, in milliseconds.
//
// `comm` is a live communicator.
rl_status rl_set_timeout(const rl_comm *comm, uint64_t timeout_ms);

// Sets the hints of the communicator, as `deterministic=true,algorithm=ring`. The same on all ranks.
//
// `comm` is a live communicator, `hints` a text.
rl_status rl_set_hints(const rl_comm *comm, const char *hints);

// Returns 0 if there is a hint of that name, else the status of an error that names what is near: for programs whose
// hints are for several libraries.
//
// `key` is a text.
rl_status rl_hint_known(const char *key);

// Says which algorithm a call on a vector of that many bytes would use, and why, in at most `capacity` bytes with the
// final 0; `length`, if not NULL, becomes the length of the whole text.
//
// `comm` is a live communicator, `collective` a text, `buffer` has `capacity` bytes, `length` is NULL or a place for a
// number.
rl_status rl_explain(const rl_comm *comm,
                     const char *collective,
                     uint64_t bytes,
                     rl_dtype of,
                     rl_op by,
                     char *buffer,
                     uint64_t capacity,
                     uint64_t *length);

// Makes a communicator of this rank alone, for a process that is to come to others by `rl_reconfigure`. `hints` as in
// `rl_join`; they and the environment are to be those of the others.
//
// `hints` is NULL or a text, `out` is a place for a pointer.
rl_status rl_alone(const char *hints, rl_comm **out);

// Writes this rank's handle for the next generation, in at most `capacity` bytes with the final 0; `length`, if not
// NULL, becomes the length of the whole text. It has less than 400 bytes with up to four paths between hosts, and
// serves for one call of `rl_reconfigure`.
//
// `comm` is a live communicator, `buffer` has `capacity` bytes, `length` is NULL or a place for a number.
rl_status rl_reconfigure_handle(const rl_comm *comm, char *buffer, uint64_t capacity, uint64_t *length);

// Goes on as a rank of a new generation, of all ranks that the `count` handles name: by their places in the list if
// `ordered` is not 0, else as the runtime numbers them. All of them call together with the same handles and `id`, any
// text. Operations that were started end first: abort if they may wait for a rank that is gone. If it fails the
// communicator is what it was, and may try again by new handles.
//
// `comm` is a live communicator, `id` a text, `handles` has `count` texts.
rl_status rl_reconfigure(const rl_comm *comm,
                         const char *id,
                         const char *const *handles,
                         uint32_t count,
                         int32_t ordered,
                         uint64_t timeout_ms);

// Goes on with the ranks that are left, all of which call it after a call has failed, or has lost a rank. It waits
// for them for so long at the most; ranks and their number are others then.
//
// `comm` is a live communicator.
rl_status rl_shrink(const rl_comm *comm, uint64_t timeout_ms);

// Ends the communicator on all ranks, from any thread, at once: calls that are pending, or follow, fail. When it
// returns, 8 ms later at most, operations write to no memory of this host any more, unless the system gave their
// thread no processor for so long. `why` is a text for the messages, or NULL.
//
// `comm` is a live communicator, `why` NULL or a text.
rl_status rl_abort(const rl_comm *comm, const char *why);

// Returns 1 once any rank has ended the communicator, else 0.
//
// `comm` is NULL or a live communicator.
int32_t rl_is_aborted(const rl_comm *comm);

// Frees a communicator after all operations that were started. NULL is ignored. In a process that was forked from the
// rank's it frees that process's copy and ends nothing.
//
// `comm` is NULL or a live communicator, which is not used any more.
rl_status rl_free(rl_comm *comm);

// Binds an endpoint, with the settings of the environment and these hints (`key=value,key=value`, or NULL); the secret
// is that of `ROUNDELAY_SECRET`.
//
// `hints` is NULL or a text, `endpoint` a place for a pointer.
rl_status rl_endpoint_bind(const char *hints, rl_endpoint **endpoint);

// Writes the bytes by which peers connect to the endpoint, at most 4096, and their number to `len`. With `data` NULL
// only the number.
//
// `endpoint` is live; `data` is NULL or has `capacity` bytes, `len` is a place for a number.
rl_status rl_endpoint_address(const rl_endpoint *endpoint, void *data, uint64_t capacity, uint64_t *len);

// Connects to the endpoint of that address, which connects to this one, within that many milliseconds. Two endpoints
// connect once.
//
// `endpoint` is live; `address` has `len` bytes, `link` is a place for a pointer.
rl_status rl_endpoint_connect(const rl_endpoint *endpoint,
                              const void *address,
                              uint64_t len,
                              uint64_t timeout_ms,
                              rl_link **link);

// Closes an endpoint, its links and its regions, and ends the waits of other threads. It is still to be freed, as are
// they.
//
// `endpoint` is live.
rl_status rl_endpoint_close(const rl_endpoint *endpoint);

// Frees an endpoint; its links and regions live on. NULL is ignored.
//
// `endpoint` is NULL or live, and is not used any more.
rl_status rl_endpoint_free(rl_endpoint *endpoint);

// Registers memory: peers of the endpoint, now or later, get these rights to it, `RL_READ`, `RL_WRITE` and
// `RL_ATOMICS`, with which it begins at a multiple of 8 bytes.
//
// `endpoint` is live, `region` a place for a pointer. The bytes lie there until `rl_region_revoke` has returned 0, and
// nothing reads or writes them while a peer may do so.
rl_status rl_endpoint_register(const rl_endpoint *endpoint,
                               void *data,
                               uint64_t bytes,
                               uint32_t peers_may,
                               rl_region **region);

// Writes the bytes by which a peer names the region, 36 of them, and their number to `len`.
//
// `region` is live; `data` is NULL or has `capacity` bytes, `len` is a place for a number.
rl_status rl_region_key(const rl_region *region, void *data, uint64_t capacity, uint64_t *len);

// Revokes a region, and frees it: no peer reads or writes its memory any more. If it fails, a peer that was stopped in
// an access may yet do so until its link is closed: keep the memory until then. NULL is ignored.
//
// `region` is NULL or live, and is not used any more.
rl_status rl_region_revoke(rl_region *region);

// Opens the peer's region of that key. Whether the key is good shows when it is used.
//
// `link` is live; `key` has `len` bytes, `remote` is a place for a pointer.
rl_status rl_link_open(const rl_link *link, const void *key, uint64_t len, rl_remote **remote);

// Frees what `rl_link_open` made. NULL is ignored.
//
// `remote` is NULL or live, and is not used any more.
rl_status rl_remote_free(rl_remote *remote);

// Writes bytes to a peer's region, from byte `at` on; if `value` is not NULL, notifies the peer by it afterwards.
// Without `work`, returns when they are there.
//
// `remote` is live; `data` holds that many bytes until the operation has ended, and nothing writes them meanwhile.
// `value` is NULL or a number, `work` NULL or a place for a pointer.
rl_status rl_remote_put(const rl_remote *remote,
                        const void *data,
                        uint64_t bytes,
                        uint64_t at,
                        const uint64_t *value,
                        rl_work **work);

// Reads bytes of a peer's region, from byte `at` on. Without `work`, returns when they are here.
//
// `remote` is live; `data` has room for that many bytes until the operation has ended, and nothing touches them
// meanwhile. `work` is NULL or a place for a pointer.
rl_status rl_remote_get(const rl_remote *remote, void *data, uint64_t bytes, uint64_t at, rl_work **work);

// Adds to the word of 8 bytes that begins at byte `at` of a peer's region, and writes what it was to `before`. The
// region was registered with `RL_ATOMICS`, and `at` is a multiple of 8.
//
// `remote` is live, `before` a place for a number.
rl_status rl_remote_fetch_add(const rl_remote *remote, uint64_t value, uint64_t at, uint64_t *before);

// Stores `to` in the word of 8 bytes that begins at byte `at` of a peer's region if it is `from`, and writes what it
// was to `before`, as `rl_remote_fetch_add`.
//
// As `rl_remote_fetch_add`.
rl_status rl_remote_compare_swap(const rl_remote *remote, uint64_t from, uint64_t to, uint64_t at, uint64_t *before);

// Notifies the peer by a value, after everything that this thread has done on the link before.
//
// `link` is live.
rl_status rl_link_signal(const rl_link *link, uint64_t value);

// Waits for a notification of the peer, at most that many milliseconds, and takes it: writes 1 to `came` and its value
// to `value`. Writes 0 to `came` if none has come; the link is then as before.
//
// `link` is live; `value` and `came` are places for numbers.
rl_status rl_link_wait_signal(const rl_link *link, uint64_t timeout_ms, uint64_t *value, int32_t *came);

// Sets the longest time without progress of a wait on a link, in milliseconds.
//
// `link` is live.
rl_status rl_link_set_timeout(const rl_link *link, uint64_t timeout_ms);

// Writes 1 to `open` unless the link was closed, has failed, or the peer is known to be gone; else 0. Never waits.
//
// `link` is live, `open` a place for a number.
rl_status rl_link_is_open(const rl_link *link, int32_t *open);

// Ends a link at both ends, from any thread and without a wait.
//
// `link` is live, `why` a text.
rl_status rl_link_abort(const rl_link *link, const char *why);

// Closes a link, and ends the waits of other threads. It is still to be freed.
//
// `link` is live.
rl_status rl_link_close(const rl_link *link);

// Frees a link; it is closed once its remote regions are freed, too. NULL is ignored.
//
// `link` is NULL or live, and is not used any more.
rl_status rl_link_free(rl_link *link);

// Describes the last error of a call on this thread. The text is valid until the next call on this thread.
//
// `error` is NULL, or a place for an `rl_error`.
void rl_last_error(rl_error *error);

// Sends `count` elements to a rank, which calls `rl_recv` with the same tag, count and type. Messages with tags move
// beside all other operations, and may be started in any order. Without `work`, returns when the elements may be
// overwritten. Memory of a GPU is sent in the order of all operations, with tag 0 only.
//
// `comm` is a live communicator; `data` holds that many elements until the operation has ended, and nothing writes
// them meanwhile. `options` is NULL or valid, `work` NULL or a place for a pointer.
rl_status rl_send(const rl_comm *comm,
                  const void *data,
                  uint64_t count,
                  rl_dtype dtype,
                  uint32_t peer,
                  uint64_t tag,
                  const rl_options *options,
                  rl_work **work);

// Receives `count` elements from a rank, or from any (`RL_ANY_RANK`): the first message with this tag.
// `rl_work_source` says who sent it.
//
// As `rl_send`, but that nothing else touches the elements meanwhile.
rl_status rl_recv(const rl_comm *comm,
                  void *data,
                  uint64_t count,
                  rl_dtype dtype,
                  uint32_t peer,
                  uint64_t tag,
                  const rl_options *options,
                  rl_work **work);

// Sends and receives `count` messages at once; no order among them can block them.
//
// `messages` has that many entries, each of which keeps the promises of `rl_send` and `rl_recv`.
rl_status rl_batch(const rl_comm *comm,
                   const rl_message *messages,
                   uint64_t count,
                   const rl_options *options,
                   rl_work **work);

// Reduces the vectors of the ranks up to this one, its own included, each of `count` elements, and leaves the result in
// its place.
//
// `comm` is a live communicator. `data` hold that many elements of the type until the operation has ended; meanwhile
// nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a
// pointer.
rl_status rl_scan(const rl_comm *comm,
                  void *data,
                  uint64_t count,
                  rl_dtype dtype,
                  rl_op op,
                  const rl_options *options,
                  rl_work **work);

// Reduces the inputs of the ranks up to this one, its own included, each of `count` elements, into its output.
//
// `comm` is a live communicator. The buffers hold that many elements of the type until the operation has ended;
// meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place
// for a pointer.
rl_status rl_scan_into(const rl_comm *comm,
                       void *output,
                       const void *input,
                       uint64_t count,
                       rl_dtype dtype,
                       rl_op op,
                       const rl_options *options,
                       rl_work **work);

// Reduces the vectors of the ranks before this one, each of `count` elements, and leaves the result in the place of
// its own; the vector of rank 0 is left as it is.
//
// `comm` is a live communicator. `data` hold that many elements of the type until the operation has ended; meanwhile
// nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a
// pointer.
rl_status rl_exscan(const rl_comm *comm,
                    void *data,
                    uint64_t count,
                    rl_dtype dtype,
                    rl_op op,
                    const rl_options *options,
                    rl_work **work);

// Reduces the inputs of the ranks before this one, each of `count` elements, into its output; the output of rank 0 is
// left as it is.
//
// `comm` is a live communicator. The buffers hold that many elements of the type until the operation has ended;
// meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place
// for a pointer.
rl_status rl_exscan_into(const rl_comm *comm,
                         void *output,
                         const void *input,
                         uint64_t count,
                         rl_dtype dtype,
                         rl_op op,
                         const rl_options *options,
                         rl_work **work);

// Gives the memory of a communicator back to the system until it is used again: all ranks together, with the same
// flags, after messages between single ranks were received. `flags` is 0 or `RL_SUSPEND_CONNECTIONS`. Calls fail
// meanwhile, or the first one resumes it, as the hint `suspended` says. `docs/suspend.md` has what goes and what stays.
//
// `comm` is a live communicator.
rl_status rl_suspend(const rl_comm *comm, uint32_t flags);

// Resumes a communicator: all ranks together. Of one that is not suspended it is a barrier.
//
// `comm` is a live communicator.
rl_status rl_resume(const rl_comm *comm);

// Writes the memory that this rank holds to `out`, whose `size` says how long the structure is that the caller has. It
// is no call of all ranks, and a suspended communicator stays so.
//
// `comm` is a live communicator; `out` is a structure of that size.
rl_status rl_memory_stats(const rl_comm *comm, rl_memory_figures *out);

// Makes a window of `count` elements of each rank; peers get these rights to this rank's. Collective. The memory
// begins at a multiple of 8 bytes. In memory of `rl_alloc` ranks of the same host load and store, elsewhere this
// process serves them.
//
// Memory of GPUs (`RL_CUDA` in the options) was made by `cudaMalloc`, has one length on all ranks and gives all
// rights. It is mapped by all, and must not be freed before `rl_free` of the communicator has returned.
//
// `comm` is a live communicator, `options` NULL or valid, `window` a place for a pointer. The elements lie there until
// `rl_window_free` has returned, and nothing reads or writes them while a peer may do so.
rl_status rl_window_create(const rl_comm *comm,
                           void *data,
                           uint64_t count,
                           rl_dtype dtype,
                           uint32_t peers_may,
                           const rl_options *options,
                           rl_window **window);

// Ends a window on all ranks, which call together, and frees it: its memory is not written any more. If it fails, a
// peer that was stopped in an access may yet do so: keep the memory then. NULL is ignored.
//
// `window` is NULL or live, and is not used any more.
rl_status rl_window_free(rl_window *window);

// Ends a window on this rank alone, and frees it, where the others cannot be called together: peers are refused from
// now on. NULL is ignored.
//
// As `rl_window_free`.
rl_status rl_window_drop(rl_window *window);

// Writes `count` elements of the window's type to a peer's part, from element `at` on. Without `work`, returns when
// `data` may be overwritten (on GPUs, by what follows in the stream); `rl_window_flush` returns when they are there.
//
// `window` is live; `data` holds that many elements until the operation has ended, and nothing writes them meanwhile.
// `options` is NULL or valid, `work` NULL or a place for a pointer.
rl_status rl_window_put(const rl_window *window,
                        const void *data,
                        uint64_t count,
                        uint32_t peer,
                        uint64_t at,
                        const rl_options *options,
                        rl_work **work);

// Reads `count` elements of a peer's part, from element `at` on.
//
// As `rl_window_put`, but that nothing else touches the elements meanwhile.
rl_status rl_window_get(const rl_window *window,
                        void *data,
                        uint64_t count,
                        uint32_t peer,
                        uint64_t at,
                        const rl_options *options,
                        rl_work **work);

// Combines `count` elements with those of a peer's part, from element `at` on: each as one.
//
// As `rl_window_put`.
rl_status rl_window_accumulate(const rl_window *window,
                               const void *data,
                               uint64_t count,
                               rl_op by,
                               uint32_t peer,
                               uint64_t at,
                               const rl_options *options,
                               rl_work **work);

// Adds to the word of 8 bytes that begins at element `at` of a peer's part, and writes what it was to `before`; for a
// window of GPU memory that is there too, and written in the stream.
//
// `window` is live, `before` a place for a number, `options` NULL or valid.
rl_status rl_window_fetch_add(const rl_window *window,
                              uint64_t value,
                              uint32_t peer,
                              uint64_t at,
                              uint64_t *before,
                              const rl_options *options);

// Stores `to` in the word of 8 bytes that begins at element `at` of a peer's part if it is `from`, and writes what it
// was to `before`, as `rl_window_fetch_add`.
//
// As `rl_window_fetch_add`.
rl_status rl_window_compare_swap(const rl_window *window,
                                 uint64_t from,
                                 uint64_t to,
                                 uint32_t peer,
                                 uint64_t at,
                                 uint64_t *before,
                                 const rl_options *options);

// Signals a peer: it sees that after everything that this thread has done to its part before. On GPUs that is what was
// put into streams.
//
// `window` is live, `options` NULL or valid.
rl_status rl_window_signal(const rl_window *window, uint32_t peer, const rl_options *options);

// Waits for a signal of a peer, and takes it: each ends one wait. On GPUs what follows in the stream waits, and
// `rl_window_flush` returns the error if the signal does not come.
//
// `window` is live, `options` NULL or valid.
rl_status rl_window_wait_signal(const rl_window *window, uint32_t peer, const rl_options *options);

// Takes a signal of a peer if one is there: writes 1 to `taken`, else 0.
//
// `window` is live, `taken` a place for a number.
rl_status rl_window_take_signal(const rl_window *window, uint32_t peer, int32_t *taken);

// Returns when everything that this rank began on a peer's part has taken effect there, or with the first refusal of
// it; with `work`, at once. On GPUs it waits for everything in the stream of the options first, and returns what went
// wrong there.
//
// `window` is live, `options` NULL or valid, `work` NULL or a place for a pointer.
rl_status rl_window_flush(const rl_window *window, uint32_t peer, const rl_options *options, rl_work **work);

// Withdraws rights to this rank's part from all ranks: when it returns, nothing is under way that needed them.
//
// `window` is live.
rl_status rl_window_withdraw(const rl_window *window, uint32_t from_peers);

// Writes the address of a peer's part to `address`, as it is mapped here, for as long as the window is: for loads and
// stores of the caller's, by kernels of this rank's GPU if it is memory of GPUs. Parts in memory of `rl_alloc` can
// be mapped by ranks of the same host; others are refused (RL0716). A peer whose part is mapped cannot withdraw rights
// meanwhile.
//
// `window` is live, `address` a place for a pointer.
rl_status rl_window_map_remote(const rl_window *window, uint32_t peer, void **address);

// Writes what is known of a peer's part: the number of its elements to `count`, and 1 to `is_mapped` if it is mapped
// here, so that operations there are loads and stores, else 0. Each may be NULL.
//
// `window` is live, `count` and `is_mapped` NULL or places for numbers.
rl_status rl_window_attributes(const rl_window *window, uint32_t peer, uint64_t *count, int32_t *is_mapped);

// Waits for the end of an operation, at most that many milliseconds (`UINT64_MAX`: as long as it takes; the operation
// has a deadline of its own), and writes 1 to `done` if it has ended, else 0. Returns the status of the operation.
//
// `work` is live, `done` NULL or a place for a number.
rl_status rl_work_wait(const rl_work *work, uint64_t timeout_ms, int32_t *done);

// Writes 1 to `done` if the operation has ended, with or without success, else 0. Never waits.
//
// `work` is live, `done` a place for a number.
rl_status rl_work_is_done(const rl_work *work, int32_t *done);

// Writes the rank that sent the message of an operation that has ended, of `rl_recv`, to `source`.
//
// `work` is live, `source` a place for a number.
rl_status rl_work_source(const rl_work *work, uint32_t *source);

// Has a function called once, when the operation has ended, or now if it has: on the progress thread, so it should be
// short, may start operations, and must not wait for any.
//
// `work` is live; `callback` can be called with `context` on another thread, once.
rl_status rl_work_on_done(const rl_work *work, rl_done callback, void *context);

// Frees the handle on an operation, which goes on. NULL is ignored.
//
// `work` is NULL or live, and is not used any more.
void rl_work_free(rl_work *work);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ROUNDELAY_H */
