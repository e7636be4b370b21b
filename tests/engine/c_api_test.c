/* The C interface, from C: two ranks as threads against attention by its definition, and what bad
 * arguments answer. Prints what failed; the exit code is the number of failures. */
#include "longspan/c_api.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRanks = 2, kTokens = 11, kHeads = 2, kDim = 4, kElements = kTokens * kHeads * kDim };

static const char kProblem[] = "dtype=f32 heads=2/2 dim=4 lengths=11 mask=causal scale=0.5";

static int failures = 0;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void expect(int condition, const char* what) {
  if (condition) return;
  pthread_mutex_lock(&mutex);
  ++failures;
  printf("FAILED: %s\n", what);
  pthread_mutex_unlock(&mutex);
}

/* A refusal: the code, and a message that names the matter. */
static void expect_refused(int32_t code, int32_t wanted, const longspan_error* error,
                           const char* text) {
  expect(code == wanted && error->code == wanted, text);
  expect(strstr(error->message, text) != NULL, text);
  if (strstr(error->message, text) == NULL) printf("  message: %s\n", error->message);
}

/* Whole tensors: inputs, and what the definition makes of them. */
typedef struct Whole {
  float q[kElements], k[kElements], v[kElements], dout[kElements];
  double o[kElements], lse[kTokens * kHeads], dq[kElements], dk[kElements], dv[kElements];
} Whole;

static size_t element(int token, int head) { return (size_t)(token * kHeads + head) * kDim; }

static double dot(const float* a, const float* b) {
  double sum = 0;
  for (int i = 0; i < kDim; ++i) sum += (double)a[i] * b[i];
  return sum;
}

static void define_row(Whole* w, int head, int query) {
  const size_t row = element(query, head);
  double p[kTokens], sum = 0, delta = 0;
  for (int key = 0; key <= query; ++key) {
    p[key] = exp(0.5 * dot(w->q + row, w->k + element(key, head)));
    sum += p[key];
  }
  w->lse[query * kHeads + head] = log(sum);
  for (int key = 0; key <= query; ++key) {
    p[key] /= sum;
    delta += p[key] * dot(w->dout + row, w->v + element(key, head));
    for (int i = 0; i < kDim; ++i) w->o[row + i] += p[key] * w->v[element(key, head) + i];
  }
  for (int key = 0; key <= query; ++key) {
    const size_t at = element(key, head);
    const double ds = 0.5 * p[key] * (dot(w->dout + row, w->v + at) - delta);
    for (int i = 0; i < kDim; ++i) {
      w->dq[row + i] += ds * w->k[at + i];
      w->dk[at + i] += ds * w->q[row + i];
      w->dv[at + i] += p[key] * w->dout[row + i];
    }
  }
}

static Whole* make_whole(void) {
  Whole* w = calloc(1, sizeof *w);
  float* const inputs[] = {w->q, w->k, w->v, w->dout};
  for (int t = 0; t < 4; ++t) {
    for (int i = 0; i < kElements; ++i) inputs[t][i] = (float)sin(1.0 + 7 * t + 1.7 * i);
  }
  for (int head = 0; head < kHeads; ++head) {
    for (int query = 0; query < kTokens; ++query) define_row(w, head, query);
  }
  return w;
}

static longspan_tensor view(float* data, int64_t rows, int64_t dim) {
  longspan_tensor t = {data,         LONGSPAN_F32, 1, rows, kHeads, dim, rows * kHeads * dim,
                       kHeads * dim, dim};
  return t;
}

static void take_rows(float* to, const float* whole, const int64_t* rows, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    memcpy(to + i * kHeads * kDim, whole + rows[i] * kHeads * kDim, sizeof(float) * kHeads * kDim);
  }
}

static void expect_rows(const float* got, const double* wanted, const int64_t* rows, int64_t count,
                        int64_t width, const char* what) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      expect(fabs(got[i * width + j] - wanted[rows[i] * width + j]) < 1e-5, what);
    }
  }
}

typedef struct Rank {
  pthread_t thread;
  const Whole* whole;
  longspan_communicator* communicator;
  longspan_device* device;
  const char* strategy;
} Rank;

typedef struct Memory {
  float q[kElements], k[kElements], v[kElements], dout[kElements];
  float o[kElements], lse[kElements], dq[kElements], dk[kElements], dv[kElements];
  void* saved[16];
  void* workspace;
  size_t workspace_bytes;
} Memory;

static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

static Memory* make_memory(const longspan_call* call) {
  Memory* m = calloc(1, sizeof *m);
  const size_t count = longspan_call_saved_count(call);
  expect(count <= 16, "few saved buffers");
  for (size_t i = 0; i < count; ++i) {
    m->saved[i] = aligned_alloc(64, aligned(longspan_call_saved_bytes(call, i) + 1));
  }
  const size_t forward = longspan_call_workspace_bytes(call, LONGSPAN_FORWARD);
  const size_t backward = longspan_call_workspace_bytes(call, LONGSPAN_BACKWARD);
  m->workspace_bytes = aligned((forward > backward ? forward : backward) + 1);
  m->workspace = aligned_alloc(64, m->workspace_bytes);
  return m;
}

static void free_memory(Memory* m) {
  for (int i = 0; i < 16; ++i) free(m->saved[i]);
  free(m->workspace);
  free(m);
}

static void compute(longspan_engine* engine, const longspan_call* call, const Whole* whole) {
  longspan_error error;
  int64_t rows[kTokens];
  const int64_t n = longspan_call_rows(call, LONGSPAN_QUERY);
  expect(n <= kTokens && n == longspan_call_rows(call, LONGSPAN_KEY), "rows of both sides");
  expect(longspan_call_batch(call, LONGSPAN_QUERY) == 1, "batch");
  longspan_call_indices(call, LONGSPAN_QUERY, rows);
  Memory* m = make_memory(call);
  take_rows(m->q, whole->q, rows, n);
  take_rows(m->k, whole->k, rows, n);
  take_rows(m->v, whole->v, rows, n);
  take_rows(m->dout, whole->dout, rows, n);
  const longspan_tensor q = view(m->q, n, kDim), k = view(m->k, n, kDim), v = view(m->v, n, kDim);
  const longspan_tensor o = view(m->o, n, kDim), lse = view(m->lse, n, 1);
  const longspan_tensor dout = view(m->dout, n, kDim), dq = view(m->dq, n, kDim);
  const longspan_tensor dk = view(m->dk, n, kDim), dv = view(m->dv, n, kDim);

  longspan_tensor bad = q;
  bad.dtype = 17;
  expect_refused(longspan_forward(engine, call, &bad, &k, &v, &o, &lse, NULL, m->saved,
                                  m->workspace, m->workspace_bytes, &error),
                 LONGSPAN_INVALID_ARGUMENT, &error, "dtype is unknown");
  expect_refused(longspan_forward(engine, call, &q, &k, &v, &o, NULL, NULL, m->saved, m->workspace,
                                  m->workspace_bytes, &error),
                 LONGSPAN_INVALID_ARGUMENT, &error, "an argument is NULL");
  expect_refused(
      longspan_forward(engine, call, &q, &k, &v, &o, &lse, NULL, m->saved, NULL, 0, &error),
      LONGSPAN_INVALID_ARGUMENT, &error, "workspace");

  expect(longspan_forward(engine, call, &q, &k, &v, &o, &lse, NULL, m->saved, m->workspace,
                          m->workspace_bytes, &error) == LONGSPAN_OK,
         "forward");
  expect(longspan_backward(engine, call, &q, &k, &v, &o, &lse, &dout, &dq, &dk, &dv, NULL, m->saved,
                           m->workspace, m->workspace_bytes, &error) == LONGSPAN_OK,
         "backward");
  expect_rows(m->o, whole->o, rows, n, kHeads * kDim, "o");
  expect_rows(m->lse, whole->lse, rows, n, kHeads, "lse");
  expect_rows(m->dq, whole->dq, rows, n, kHeads * kDim, "dq");
  expect_rows(m->dk, whole->dk, rows, n, kHeads * kDim, "dk");
  expect_rows(m->dv, whole->dv, rows, n, kHeads * kDim, "dv");
  free_memory(m);
}

/* Counts the lines of each level in its context. */
static void count_line(void* context, int32_t level, const char* message) {
  expect(level >= LONGSPAN_LOG_INFO && level <= LONGSPAN_LOG_ERROR, "level of a log line");
  expect(strncmp(message, "rank 0: ", 8) == 0, "a log line begins with the rank");
  ++((int*)context)[level];
}

static void test_log(longspan_device* device) {
  int lines[3] = {0, 0, 0};
  const longspan_options options = {
      .forward_provider = "prefer:cudnn", .log = count_line, .log_context = lines};
  longspan_communicator* one = NULL;
  longspan_engine* engine = NULL;
  longspan_call* call = NULL;
  expect(longspan_communicator_threads(1, 1, &one, NULL) == LONGSPAN_OK, "one communicator");
  expect(longspan_engine_create(&options, one, device, &engine, NULL) == LONGSPAN_OK, "engine");
  expect(longspan_prepare(engine, kProblem, &call, NULL) == LONGSPAN_OK, "prepare");
  expect(lines[LONGSPAN_LOG_INFO] >= 3, "a cold call is told of");
  expect(lines[LONGSPAN_LOG_WARNING] == 1, "a fallback is a warning");
  expect(lines[LONGSPAN_LOG_ERROR] == 0, "no error was told of");
  const int before = lines[LONGSPAN_LOG_INFO];
  longspan_call_free(call);
  expect(longspan_prepare(engine, kProblem, &call, NULL) == LONGSPAN_OK, "prepare again");
  expect(lines[LONGSPAN_LOG_INFO] == before, "a warm call is not told of");
  longspan_call_free(call);
  longspan_engine_free(engine);
  longspan_communicator_free(one);
}

static void* run_rank(void* argument) {
  Rank* rank = argument;
  longspan_error error = {0, ""};
  const longspan_options options = {.forward_strategy = rank->strategy,
                                    .backward_strategy = rank->strategy,
                                    .deadline_ms = 20000};
  longspan_engine* engine = NULL;
  expect(longspan_engine_create(&options, rank->communicator, rank->device, &engine, &error) ==
             LONGSPAN_OK,
         "engine");
  longspan_call* call = NULL;
  expect(longspan_prepare(engine, kProblem, &call, &error) == LONGSPAN_OK, "prepare");
  if (call != NULL) compute(engine, call, rank->whole);
  if (call == NULL) printf("  message: %s\n", error.message);
  longspan_call_free(call);
  longspan_engine_free(engine);
  longspan_communicator_free(rank->communicator);
  return NULL;
}

static void test_ranks(const Whole* whole, longspan_device* device, const char* strategy) {
  longspan_communicator* communicators[kRanks];
  expect(longspan_communicator_threads(kRanks, 1, communicators, NULL) == LONGSPAN_OK,
         "communicators");
  Rank ranks[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    ranks[r] = (Rank){
        .whole = whole, .communicator = communicators[r], .device = device, .strategy = strategy};
    pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]);
  }
  for (int r = 0; r < kRanks; ++r) pthread_join(ranks[r].thread, NULL);
}

static void test_refusals(longspan_device* device) {
  longspan_error error;
  longspan_communicator* one = NULL;
  longspan_engine* engine = NULL;
  longspan_call* call = NULL;
  expect_refused(longspan_device_cpu(-1, &device, &error), LONGSPAN_INVALID_ARGUMENT, &error,
                 "threads is negative");
  expect_refused(longspan_communicator_threads(0, 1, &one, &error), LONGSPAN_INVALID_ARGUMENT,
                 &error, "at least 1");
  expect(longspan_communicator_threads(1, 1, &one, &error) == LONGSPAN_OK, "one communicator");
  longspan_options options = {.forward_strategy = "rings"};
  expect_refused(longspan_engine_create(&options, one, device, &engine, &error),
                 LONGSPAN_INVALID_ARGUMENT, &error, "rings");
  options = (longspan_options){.forward_provider = "perhaps:cpu/tiled"};
  expect_refused(longspan_engine_create(&options, one, device, &engine, &error),
                 LONGSPAN_INVALID_ARGUMENT, &error, "perhaps");
  expect_refused(longspan_engine_create(NULL, NULL, device, &engine, &error),
                 LONGSPAN_INVALID_ARGUMENT, &error, "NULL");
  expect(engine == NULL, "no engine from a refusal");
  expect(longspan_engine_create(NULL, one, device, &engine, NULL) == LONGSPAN_OK, "engine");
  expect_refused(longspan_prepare(engine, "dtype=f32 heads=2/2 dims=4", &call, &error),
                 LONGSPAN_INVALID_ARGUMENT, &error, "dims");
  expect_refused(
      longspan_prepare(engine, "dtype=f32 heads=2/2 dim=4 lengths=4 mask=none fp8=current", &call,
                       &error),
      LONGSPAN_UNSUPPORTED, &error, "fp8");
  expect(call == NULL, "no call from a refusal");
  expect(longspan_prepare(engine, NULL, &call, NULL) == LONGSPAN_INVALID_ARGUMENT, "error is NULL");
  longspan_callbacks callbacks = {.rank = 0, .ranks = 1};
  longspan_communicator* own = NULL;
  expect_refused(longspan_communicator_callback(&callbacks, &own, &error),
                 LONGSPAN_INVALID_ARGUMENT, &error, "start and wait");
  longspan_engine_free(engine);
  longspan_communicator_free(one);
}

int main(void) {
  longspan_device* device = NULL;
  expect(strlen(longspan_version()) > 0, "version");
  expect(longspan_device_cpu(2, &device, NULL) == LONGSPAN_OK, "device");
  Whole* whole = make_whole();
  const char* strategies[] = {"ring", "all_gather", "all_to_all", "hybrid"};
  for (size_t i = 0; i < sizeof strategies / sizeof *strategies; ++i) {
    test_ranks(whole, device, strategies[i]);
  }
  test_refusals(device);
  test_log(device);
  free(whole);
  longspan_device_free(device);
  printf(failures == 0 ? "PASS\n" : "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
