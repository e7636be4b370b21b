/* Plans as bytes in the C interface: saved by one engine, loaded by another; tables of measured
 * times that engines are given. Prints what failed; the exit code is the number of failures. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "longspan/c_api.h"

static const char kProblem[] = "dtype=f32 heads=2/2 dim=4 lengths=11 mask=causal scale=0.5";

static int failures = 0;

static void expect(int condition, const char* what) {
  if (condition) return;
  ++failures;
  printf("FAILED: %s\n", what);
}

static longspan_engine* make_engine(void) {
  longspan_device* device = NULL;
  longspan_communicator* communicator = NULL;
  longspan_engine* engine = NULL;
  expect(longspan_device_cpu(1, &device, NULL) == LONGSPAN_OK, "device");
  expect(longspan_communicator_threads(1, 1, &communicator, NULL) == LONGSPAN_OK, "communicator");
  expect(longspan_engine_create(NULL, communicator, device, &engine, NULL) == LONGSPAN_OK,
         "engine");
  longspan_communicator_free(communicator);
  longspan_device_free(device);
  return engine;
}

/* The bytes of a call's plan, which the caller frees. */
static char* plan_of(const longspan_call* call, size_t* size) {
  expect(longspan_call_plan(call, NULL, 0, size, NULL) == LONGSPAN_OK, "size of a plan");
  char* bytes = malloc(*size);
  memset(bytes, '#', *size);
  size_t same = 0;
  expect(longspan_call_plan(call, bytes, *size - 1, &same, NULL) == LONGSPAN_OK, "small capacity");
  expect(same == *size && bytes[0] == '#', "a small capacity writes nothing");
  expect(longspan_call_plan(call, bytes, *size, &same, NULL) == LONGSPAN_OK, "plan");
  expect(same == *size && bytes[0] == '{' && bytes[*size - 1] == '}', "bytes of a plan");
  return bytes;
}

static void load_elsewhere(const char* bytes, size_t size) {
  longspan_engine* engine = make_engine();
  longspan_call* call = NULL;
  longspan_error error;
  expect(longspan_load(engine, bytes, size, &call, &error) == LONGSPAN_OK, "load");
  expect(longspan_call_rows(call, LONGSPAN_QUERY) == 11, "rows of a loaded plan");
  size_t again_size = 0;
  char* again = plan_of(call, &again_size);
  expect(again_size == size && memcmp(again, bytes, size) == 0, "the same bytes again");
  free(again);
  longspan_call_free(call);
  call = NULL;
  expect(longspan_load(engine, bytes, size - 1, &call, &error) == LONGSPAN_INVALID_ARGUMENT, "cut");
  expect(strstr(error.message, "no JSON object") != NULL, error.message);
  expect(longspan_load(engine, NULL, 0, &call, &error) == LONGSPAN_INVALID_ARGUMENT, "no bytes");
  expect(strstr(error.message, "a plan of 0 bytes") != NULL, error.message);
  expect(longspan_load(engine, bytes, size, NULL, &error) == LONGSPAN_INVALID_ARGUMENT, "no call");
  expect(call == NULL, "a refusal makes no call");
  longspan_engine_free(engine);
}

/* Creates an engine that goes by the table at `path`. */
static int32_t create_with_table(const char* path, longspan_error* error) {
  longspan_device* device = NULL;
  longspan_communicator* communicator = NULL;
  longspan_engine* engine = NULL;
  const longspan_options options = {.routing_table = path};
  expect(longspan_device_cpu(1, &device, NULL) == LONGSPAN_OK, "device");
  expect(longspan_communicator_threads(1, 1, &communicator, NULL) == LONGSPAN_OK, "communicator");
  const int32_t code = longspan_engine_create(&options, communicator, device, &engine, error);
  longspan_engine_free(engine);
  longspan_communicator_free(communicator);
  longspan_device_free(device);
  return code;
}

static void test_routing_tables(void) {
  longspan_error error = {0, ""};
  const char* path = "c_api_routing_table.json";
  remove(path);
  expect(create_with_table(path, &error) == LONGSPAN_INVALID_ARGUMENT, "no such table");
  expect(strstr(error.message, "cannot be read") != NULL, error.message);
  FILE* file = fopen(path, "w");
  fputs("{\"format\": 1, \"fingerprint\": {}, \"rows\": []}", file);
  fclose(file);
  expect(create_with_table(path, &error) == LONGSPAN_OK, "an empty table");
  remove(path);
}

int main(void) {
  test_routing_tables();
  longspan_engine* engine = make_engine();
  longspan_call* call = NULL;
  expect(longspan_prepare(engine, kProblem, &call, NULL) == LONGSPAN_OK, "prepare");
  size_t size = 0;
  char* bytes = plan_of(call, &size);
  longspan_call_free(call);
  longspan_engine_free(engine);
  load_elsewhere(bytes, size);
  free(bytes);
  return failures;
}
