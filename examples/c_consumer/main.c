/* Causal attention from C, forward and backward, over two ranks of this process.
 *
 * Checked at the end: the first token sees itself alone, so its output is its value; and a query's
 * weights sum to 1, so the gradients of v sum to those of the output.
 */
#include <longspan/c_api.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRanks = 2, kHeads = 4, kHeadsKv = 2, kDim = 16, kAlignment = 64 };

static const char* const kProblem = "dtype=f32 heads=4/2 dim=16 lengths=101 mask=causal";

/* One rank: what it is given, and what it found. */
typedef struct {
  int rank;
  longspan_communicator* communicator;
  longspan_device* device;
  int32_t code;
  longspan_error error;
  long long rows;
  double dout_sum, dv_sum;
  double first_error; /* of the first token's output; 0 where another rank holds it */
} rank_state;

/* Tensors of a rank, and everything else that has to be freed. */
typedef struct {
  longspan_engine* engine;
  longspan_call* call;
  longspan_tensor q, k, v, o, lse, dout, dq, dk, dv;
  void* workspace[2];
  size_t workspace_bytes[2];
  void** saved;
} rank_memory;

static void* aligned(size_t bytes) {
  void* data = aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
  if (data == NULL) {
    fputs("out of memory\n", stderr);
    exit(1);
  }
  return data;
}

static longspan_tensor make_tensor(int64_t rows, int64_t heads, int64_t dim) {
  longspan_tensor t = {.dtype = LONGSPAN_F32, .batch = 1, .seq = rows, .heads = heads, .dim = dim};
  t.stride_head = dim;
  t.stride_seq = heads * dim;
  t.stride_batch = rows * heads * dim;
  t.data = aligned((size_t)t.stride_batch * sizeof(float));
  return t;
}

static void draw(const longspan_tensor* t, uint32_t seed) {
  float* values = t->data;
  for (int64_t i = 0; i < t->stride_batch; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)(seed >> 8) / 16777216.0f - 0.5f;
  }
}

static double sum(const longspan_tensor* t) {
  const float* values = t->data;
  double total = 0;
  for (int64_t i = 0; i < t->stride_batch; ++i) total += values[i];
  return total;
}

static void make_memory(rank_memory* m, int rank) {
  const int64_t rows = longspan_call_rows(m->call, LONGSPAN_QUERY);
  const int64_t rows_kv = longspan_call_rows(m->call, LONGSPAN_KEY);
  m->q = make_tensor(rows, kHeads, kDim);
  m->k = make_tensor(rows_kv, kHeadsKv, kDim);
  m->v = make_tensor(rows_kv, kHeadsKv, kDim);
  m->o = make_tensor(rows, kHeads, kDim);
  m->lse = make_tensor(rows, kHeads, 1);
  m->dout = make_tensor(rows, kHeads, kDim);
  m->dq = make_tensor(rows, kHeads, kDim);
  m->dk = make_tensor(rows_kv, kHeadsKv, kDim);
  m->dv = make_tensor(rows_kv, kHeadsKv, kDim);
  const longspan_tensor* const inputs[] = {&m->q, &m->k, &m->v, &m->dout};
  for (uint32_t i = 0; i < 4; ++i) draw(inputs[i], 4 * (uint32_t)rank + i + 1);
  for (int32_t direction = LONGSPAN_FORWARD; direction <= LONGSPAN_BACKWARD; ++direction) {
    m->workspace_bytes[direction] = longspan_call_workspace_bytes(m->call, direction);
    m->workspace[direction] = aligned(m->workspace_bytes[direction]);
  }
  const size_t count = longspan_call_saved_count(m->call);
  m->saved = calloc(count + 1, sizeof(void*));
  for (size_t i = 0; i < count; ++i) m->saved[i] = aligned(longspan_call_saved_bytes(m->call, i));
}

static void free_memory(rank_memory* m) {
  void* const data[] = {m->q.data,   m->k.data,       m->v.data,      m->o.data,
                        m->lse.data, m->dout.data,    m->dq.data,     m->dk.data,
                        m->dv.data,  m->workspace[0], m->workspace[1]};
  for (size_t i = 0; i < sizeof data / sizeof *data; ++i) free(data[i]);
  for (size_t i = 0; m->saved != NULL && m->saved[i] != NULL; ++i) free(m->saved[i]);
  free(m->saved);
  longspan_call_free(m->call);
  longspan_engine_free(m->engine);
}

static void inspect(const rank_memory* m, rank_state* state) {
  const int64_t rows = m->q.seq;
  state->rows = rows;
  state->dout_sum = sum(&m->dout);
  state->dv_sum = sum(&m->dv);
  int64_t* indices = malloc((size_t)(rows + 1) * sizeof *indices);
  if (indices == NULL) return;
  longspan_call_indices(m->call, LONGSPAN_QUERY, indices);
  for (int64_t row = 0; row < rows; ++row) {
    if (indices[row] != 0) continue;
    /* This problem's keys are split like its queries, so the value lies in the same row. */
    const float* o = (const float*)m->o.data + row * m->o.stride_seq;
    const float* v = (const float*)m->v.data + row * m->v.stride_seq;
    for (int i = 0; i < kHeads * kDim; ++i) {
      const int head_kv = i / kDim / (kHeads / kHeadsKv);
      const double error = fabs((double)o[i] - (double)v[head_kv * kDim + i % kDim]);
      if (!(error <= state->first_error)) state->first_error = error;
    }
  }
  free(indices);
}

static void* run_rank(void* argument) {
  rank_state* state = argument;
  rank_memory m;
  memset(&m, 0, sizeof m);
  const longspan_options options = {.forward_strategy = "ring", .backward_strategy = "ring"};
  state->code = longspan_engine_create(&options, state->communicator, state->device, &m.engine,
                                       &state->error);
  if (state->code == 0) {
    state->code = longspan_prepare(m.engine, kProblem, &m.call, &state->error);
  }
  if (state->code == 0) {
    make_memory(&m, state->rank);
    state->code = longspan_forward(m.engine, m.call, &m.q, &m.k, &m.v, &m.o, &m.lse, NULL, m.saved,
                                   m.workspace[0], m.workspace_bytes[0], &state->error);
  }
  if (state->code == 0) {
    state->code = longspan_backward(m.engine, m.call, &m.q, &m.k, &m.v, &m.o, &m.lse, &m.dout,
                                    &m.dq, &m.dk, &m.dv, NULL, m.saved, m.workspace[1],
                                    m.workspace_bytes[1], &state->error);
  }
  if (state->code == 0) inspect(&m, state);
  free_memory(&m);
  return NULL;
}

static int report(const rank_state states[kRanks]) {
  double dout_sum = 0, dv_sum = 0, first_error = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const rank_state* s = &states[rank];
    if (s->code != 0) {
      fprintf(stderr, "rank %d: code %d: %s\n", rank, (int)s->code, s->error.message);
      return 1;
    }
    printf("rank %d: %lld tokens\n", rank, s->rows);
    dout_sum += s->dout_sum;
    dv_sum += s->dv_sum;
    if (!(s->first_error <= first_error)) first_error = s->first_error;
  }
  const int sums_equal = fabs(dout_sum - dv_sum) <= 1e-4 * (fabs(dout_sum) + 1);
  const int first_equal = first_error <= 1e-6;
  printf("sum(dout), sum(dv): %.6f and %.6f: %s\n", dout_sum, dv_sum,
         sums_equal ? "equal" : "DIFFERENT");
  printf("first token, |o - v|: %.1e: %s\n", first_error, first_equal ? "equal" : "DIFFERENT");
  return sums_equal && first_equal ? 0 : 1;
}

int main(void) {
  printf("longspan %s: %s over %d ranks\n", longspan_version(), kProblem, (int)kRanks);
  longspan_error error;
  longspan_device* device = NULL;
  longspan_communicator* communicators[kRanks] = {NULL};
  if (longspan_device_cpu(0, &device, &error) != 0 ||
      longspan_communicator_threads(kRanks, 1, communicators, &error) != 0) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  rank_state states[kRanks];
  pthread_t threads[kRanks];
  memset(states, 0, sizeof states);
  for (int rank = 0; rank < kRanks; ++rank) {
    states[rank] = (rank_state){rank, communicators[rank], device, 0, {0, ""}, 0, 0, 0, 0};
    if (pthread_create(&threads[rank], NULL, run_rank, &states[rank]) != 0) return 1;
  }
  for (int rank = 0; rank < kRanks; ++rank) pthread_join(threads[rank], NULL);
  const int status = report(states);
  for (int rank = 0; rank < kRanks; ++rank) longspan_communicator_free(communicators[rank]);
  longspan_device_free(device);
  return status;
}
