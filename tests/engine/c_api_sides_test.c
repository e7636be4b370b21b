/* Sinks, largest logits, dropout, paged keys and lengths of calls through the C interface, on one
 * rank. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "longspan/c_api.h"

enum { kTokens = 6, kHeads = 2, kDim = 4, kWidth = kHeads * kDim };
enum { kElements = kTokens * kWidth, kPage = 4, kPages = 3 };

static int failures = 0;

static void expect(int right, const char* what) {
  if (right) return;
  ++failures;
  printf("FAILED: %s\n", what);
}

typedef struct Run {
  float o[kElements], lse[kTokens * kHeads], max_logit[kHeads];
  float dq[kElements], dk[kElements], dv[kElements], dsink[kHeads];
} Run;

static float q_data[kElements], k_data[kElements], v_data[kElements], dout_data[kElements];
static const float sink_data[kHeads] = {0.5f, -1.0f};

static longspan_tensor rows(const void* data, int64_t dim) {
  return (longspan_tensor){.data = (void*)data,
                           .dtype = LONGSPAN_F32,
                           .batch = 1,
                           .seq = kTokens,
                           .heads = kHeads,
                           .dim = dim,
                           .stride_batch = kTokens * kHeads * dim,
                           .stride_seq = kHeads * dim,
                           .stride_head = dim};
}

static longspan_tensor per_head(const void* data) {
  return (longspan_tensor){.data = (void*)data,
                           .dtype = LONGSPAN_F32,
                           .batch = 1,
                           .seq = 1,
                           .heads = kHeads,
                           .dim = 1,
                           .stride_batch = kHeads,
                           .stride_seq = kHeads,
                           .stride_head = 1};
}

static void* memory(size_t bytes) { return aligned_alloc(64, (bytes + 64) / 64 * 64); }

typedef struct Setup {
  longspan_communicator* communicator;
  longspan_engine* engine;
  longspan_call* call;
  void* saved[8];
  void* workspace[2];
  size_t bytes[2];
} Setup;

static Setup make_setup(longspan_device* device, const char* problem, const char* backward) {
  Setup s = {0};
  longspan_error error = {0, ""};
  const longspan_options options = {.backward_strategy = backward};
  expect(longspan_communicator_threads(1, 1, &s.communicator, &error) == LONGSPAN_OK, "rank");
  expect(longspan_engine_create(&options, s.communicator, device, &s.engine, &error) == LONGSPAN_OK,
         error.message);
  expect(longspan_prepare(s.engine, problem, &s.call, &error) == LONGSPAN_OK, error.message);
  if (s.call == NULL) exit(1);
  expect(longspan_call_saved_count(s.call) <= 8, "few saved buffers");
  for (size_t i = 0; i < longspan_call_saved_count(s.call); ++i) {
    s.saved[i] = memory(longspan_call_saved_bytes(s.call, i));
  }
  for (int direction = 0; direction < 2; ++direction) {
    s.bytes[direction] = longspan_call_workspace_bytes(s.call, direction);
    s.workspace[direction] = memory(s.bytes[direction]);
  }
  return s;
}

static void free_setup(Setup* s) {
  longspan_call_free(s->call);
  longspan_engine_free(s->engine);
  longspan_communicator_free(s->communicator);
  for (int i = 0; i < 8; ++i) free(s->saved[i]);
  free(s->workspace[0]);
  free(s->workspace[1]);
}

static void forward(Setup* s, const longspan_tensor* k, const longspan_tensor* v,
                    const longspan_sides* sides, Run* run) {
  longspan_error error = {0, ""};
  const longspan_tensor q = rows(q_data, kDim), o = rows(run->o, kDim), lse = rows(run->lse, 1);
  expect(longspan_forward(s->engine, s->call, &q, k, v, &o, &lse, sides, s->saved, s->workspace[0],
                          s->bytes[0], &error) == LONGSPAN_OK,
         error.message);
}

static void both(longspan_device* device, const char* problem, const longspan_sides* sides,
                 Run* run) {
  Setup s = make_setup(device, problem, NULL);
  longspan_error error = {0, ""};
  const longspan_tensor q = rows(q_data, kDim), k = rows(k_data, kDim), v = rows(v_data, kDim);
  const longspan_tensor o = rows(run->o, kDim), lse = rows(run->lse, 1);
  const longspan_tensor dout = rows(dout_data, kDim), dq = rows(run->dq, kDim);
  const longspan_tensor dk = rows(run->dk, kDim), dv = rows(run->dv, kDim);
  forward(&s, &k, &v, sides, run);
  longspan_sides back = *sides;
  back.max_logit = NULL;
  expect(longspan_backward(s.engine, s.call, &q, &k, &v, &o, &lse, &dout, &dq, &dk, &dv, &back,
                           s.saved, s.workspace[1], s.bytes[1], &error) == LONGSPAN_OK,
         error.message);
  free_setup(&s);
}

static void test_sink(longspan_device* device) {
  static Run plain, with;
  const longspan_tensor sink = per_head(sink_data), largest = per_head(with.max_logit);
  const longspan_tensor dsink = per_head(with.dsink);
  const longspan_sides none = {0};
  const longspan_sides sides = {.sink = &sink, .max_logit = &largest, .dsink = &dsink};
  both(device, "dtype=f32 heads=2/2 dim=4 lengths=6 mask=causal", &none, &plain);
  both(device, "dtype=f32 heads=2/2 dim=4 lengths=6 mask=causal sink=learnable max_logit=true",
       &sides, &with);
  double gradient[kHeads] = {0, 0};
  for (int row = 0; row < kTokens; ++row) {
    for (int head = 0; head < kHeads; ++head) {
      const int at = row * kHeads + head;
      const double lse = log(exp(plain.lse[at]) + exp(sink_data[head]));
      expect(fabs(with.lse[at] - lse) < 1e-5, "LSE includes the sink");
      double delta = 0;
      for (int i = 0; i < kDim; ++i) {
        const double o = plain.o[at * kDim + i] * exp(plain.lse[at] - lse);
        expect(fabs(with.o[at * kDim + i] - o) < 1e-5, "the sink takes its weight");
        delta += o * dout_data[at * kDim + i];
      }
      gradient[head] -= exp(sink_data[head] - lse) * delta;
    }
  }
  for (int head = 0; head < kHeads; ++head) {
    expect(fabs(with.dsink[head] - gradient[head]) < 1e-5, "gradient of the sink");
    // Row 0 sees one key, so that its LSE is a logit.
    expect(with.max_logit[head] >= plain.lse[head] - 1e-5f, "largest logit");
  }
}

static void test_dropout(longspan_device* device) {
  static Run one, two, off, plain;
  const char* problem = "dtype=f32 heads=2/2 dim=4 lengths=6 mask=none dropout=0.5";
  const longspan_sides none = {0};
  const longspan_sides seeded = {.dropout_set = 1, .dropout = 0.5, .dropout_seed = 9};
  const longspan_sides zero = {.dropout_set = 1};
  both(device, problem, &none, &one);
  both(device, problem, &seeded, &two);
  both(device, problem, &zero, &off);
  both(device, "dtype=f32 heads=2/2 dim=4 lengths=6 mask=none", &none, &plain);
  expect(memcmp(one.o, two.o, sizeof one.o) != 0, "another seed drops other pairs");
  expect(memcmp(off.o, plain.o, sizeof off.o) == 0, "probability 0 drops nothing");
}

static void test_pages(longspan_device* device) {
  static Run plain, paged;
  static float k_pool[kPages * kPage * kWidth], v_pool[kPages * kPage * kWidth];
  static const int32_t table[2] = {2, 0};
  for (int row = 0; row < kTokens; ++row) {
    const int at = (table[row / kPage] * kPage + row % kPage) * kWidth;
    memcpy(k_pool + at, k_data + row * kWidth, kWidth * sizeof(float));
    memcpy(v_pool + at, v_data + row * kWidth, kWidth * sizeof(float));
  }
  longspan_tensor k = rows(k_pool, kDim), v = rows(v_pool, kDim);
  for (longspan_tensor* t = &k; t != NULL; t = t == &k ? &v : NULL) {
    t->batch = 2;
    t->seq = kPage;
    t->stride_batch = kPage * kWidth;
    t->pages = table;
    t->page_count = kPages;
  }
  const longspan_sides none = {0};
  both(device, "dtype=f32 heads=2/2 dim=4 lengths=6 mask=causal", &none, &plain);
  Setup s = make_setup(device, "dtype=f32 heads=2/2 dim=4 lengths=6 mask=causal page=4", "none");
  forward(&s, &k, &v, NULL, &paged);
  expect(memcmp(plain.o, paged.o, sizeof plain.o) == 0, "pages hold the same keys");
  free_setup(&s);
}

static int32_t forward_of(Setup* s, const int32_t* lengths, Run* run) {
  longspan_error error = {0, ""};
  const longspan_sides sides = {.lengths_q = lengths, .lengths_k = lengths};
  const longspan_tensor q = rows(q_data, kDim), k = rows(k_data, kDim), v = rows(v_data, kDim);
  const longspan_tensor o = rows(run->o, kDim), lse = rows(run->lse, 1);
  return longspan_forward(s->engine, s->call, &q, &k, &v, &o, &lse, &sides, s->saved,
                          s->workspace[0], s->bytes[0], &error);
}

static void test_lengths(longspan_device* device) {
  static Run plain, run;
  const longspan_sides none = {0};
  both(device, "dtype=f32 heads=2/2 dim=4 lengths=4 padded=6 kv_padded=6 mask=causal", &none,
       &plain);
  Setup s = make_setup(device,
                       "dtype=f32 heads=2/2 dim=4 lengths=6 mask=causal device_lengths=true", NULL);
  static const int32_t four = 4, seven = 7, six = 6;
  expect(forward_of(&s, NULL, &run) == LONGSPAN_INVALID_ARGUMENT, "lengths are needed");
  expect(forward_of(&s, &four, &run) == LONGSPAN_OK, "lengths within capacity");
  expect(memcmp(plain.o, run.o, sizeof plain.o) == 0, "tokens behind the length are padding");
  expect(forward_of(&s, &seven, &run) == LONGSPAN_GUARD_FAILED, "beyond the capacity");
  expect(isnan(run.o[0]) && isnan(run.lse[0]), "outputs are NaN");
  expect(forward_of(&s, &six, &run) == LONGSPAN_OK, "the next call is as any other");
  free_setup(&s);
}

int main(void) {
  longspan_device* device = NULL;
  expect(longspan_device_cpu(2, &device, NULL) == LONGSPAN_OK, "device");
  for (int i = 0; i < kElements; ++i) {
    q_data[i] = (float)sin(0.7 * i);
    k_data[i] = (float)cos(1.3 * i);
    v_data[i] = (float)sin(2.1 * i + 1);
    dout_data[i] = (float)cos(0.4 * i + 2);
  }
  test_sink(device);
  test_dropout(device);
  test_pages(device);
  test_lengths(device);
  longspan_device_free(device);
  printf(failures == 0 ? "PASS\n" : "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
