// longspan: the command line. Parses, runs one command, prints what it left behind.
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "output_file.h"
#include "prepare.h"

namespace longspan::tool {
namespace {

using Words = std::vector<std::string>;

Outcome dispatch(const Arguments& arguments, Session& session) {
  if (arguments.command == "run") return run_command(arguments, session);
  if (arguments.command == "bench") return bench_command(arguments);
  if (arguments.command == "explain") return explain_command(arguments);
  if (arguments.command == "schedule") return schedule_command(arguments);
  if (arguments.command == "simulate") return simulate_command(arguments);
  if (arguments.command == "support") return support_command(arguments);
  return list_command(arguments);
}

Outcome guarded(const Arguments& arguments, Session& session) {
  const auto thrown = [&](ErrorCode code, const std::string& message) {
    session.lost = true;
    return failed({code, message, "longspan"}, arguments.problem, arguments.rank_count());
  };
  try {
    return dispatch(arguments, session);
  } catch (const std::bad_alloc&) {
    return thrown(ErrorCode::kOutOfMemory,
                  "not enough memory; use fewer tokens or a machine with more of it");
  } catch (const std::exception& error) {
    return thrown(ErrorCode::kInternal, error.what());
  }
}

bool print(std::FILE* stream, const std::string& text) {
  const size_t written = std::fwrite(text.data(), 1, text.size(), stream);
  return std::fflush(stream) == 0 && written == text.size();
}

/// Text for people goes to standard output, unless that holds the JSON alone.
int deliver(Outcome outcome, const std::string& json_path, std::optional<OutputFile> json_file) {
  if (json_file) {
    Status written = json_file->write(dump(outcome.json));
    if (written.ok()) written = json_file->commit();
    if (!written.ok()) {
      outcome.error += "longspan: " + written.error().text() + "\n";
      outcome.exit_code = kBadInput;
    }
  }
  const bool json_alone = json_path == "-";
  const bool told = print(json_alone ? stderr : stdout, outcome.text);
  print(stderr, outcome.error);
  if (json_alone ? print(stdout, dump(outcome.json)) : told) return outcome.exit_code;
  print(stderr, "longspan: cannot write the report to standard output; is its device full?\n");
  return kBadInput;
}

Outcome usage_failed(const Error& error, const Words& words) {
  return failed(error, raw_flag(words, "--problem"), 0);
}

/// Under MPI, whatever the arguments are: rank 0 reports, the others stay silent.
Session make_session(const Words& words, std::optional<Error>& error) {
  Session session;
  if (words.empty() || words.front() != "run") return session;
  if (raw_flag(words, "--communicator") != "mpi") return session;
  const std::string nodes = raw_flag(words, "--nodes");
  auto communicator = make_mpi_communicator(std::atoi(nodes.c_str()));
  if (communicator.ok()) {
    session.mpi = *std::move(communicator);
  } else {
    error = communicator.error();
  }
  return session;
}

/// An error before the run: the other ranks are told, and this one reports it.
int refuse(Session& session, const Arguments& arguments, Outcome outcome,
           const std::string& json_path, std::optional<OutputFile> json_file) {
  outcome = *agree_to_start(arguments, session, std::move(outcome));
  if (session.reports()) return deliver(std::move(outcome), json_path, std::move(json_file));
  print(stderr, outcome.error);
  return outcome.exit_code;
}

int run_parsed(const Arguments& arguments, Session& session) {
  std::optional<OutputFile> json_file;
  if (!arguments.json.empty() && arguments.json != "-" && session.reports()) {
    auto opened = OutputFile::open(arguments.json);
    if (!opened.ok()) {
      return refuse(session, arguments,
                    failed(opened.error(), arguments.problem, arguments.rank_count()), "", {});
    }
    json_file = *std::move(opened);
  }
  Outcome outcome = guarded(arguments, session);
  if (session.reports()) return deliver(std::move(outcome), arguments.json, std::move(json_file));
  print(stderr, outcome.error);
  return outcome.exit_code;
}

/// Flags that do not parse may still say where the report goes.
int usage_refused(const Error& error, const Words& words, Session& session) {
  const std::string path = raw_flag(words, "--json");
  std::optional<OutputFile> file;
  if (!path.empty() && !path.starts_with("-") && session.reports()) {
    auto opened = OutputFile::open(path);
    if (opened.ok()) file = *std::move(opened);
  }
  return refuse(session, {}, usage_failed(error, words), path, std::move(file));
}

int run_words(const Words& words, Session& session) {
  auto parsed = parse_arguments(words);
  if (!parsed.ok()) return usage_refused(parsed.error(), words, session);
  if (const auto* information = std::get_if<Information>(&*parsed)) {
    Outcome nothing_to_run;
    nothing_to_run.exit_code = kBadInput;  // for ranks that were asked to run
    agree_to_start({}, session, std::move(nothing_to_run));
    if (session.reports()) print(stdout, information->text);
    return kPass;
  }
  return run_parsed(std::get<Arguments>(*parsed), session);
}

/// Ends together, so that no launcher stops rank 0 before it has reported. Without the others the
/// process ends here: finalising MPI would wait for them.
int finish(Session& session, int exit_code) {
  if (!session.mpi) return exit_code;
  if (!session.lost) {
    const std::array<uint64_t, 1> code = {static_cast<uint64_t>(exit_code)};
    session.lost = !exchange_words(*session.mpi, code, std::chrono::hours(24)).ok();
  }
  if (session.lost) {
    session.mpi->abandon({ErrorCode::kPeerLost, "a rank ended early; see its message", "longspan"});
    std::fflush(nullptr);
    std::_Exit(exit_code == kPass ? kInternal : exit_code);
  }
  session.mpi.reset();
  return exit_code;
}

int main_words(const Words& words) {
  std::optional<Error> error;
  Session session = make_session(words, error);
  if (error) return deliver(usage_failed(*error, words), raw_flag(words, "--json"), {});
  const int exit_code = run_words(words, session);
  return finish(session, exit_code);
}

}  // namespace
}  // namespace longspan::tool

int main(int argc, char** argv) {
  setenv("NCCL_NVLS_ENABLE", "0", 1);  // what the nccl communicator asks of its process
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words.front() == "prepare") {
    return longspan::tool::become_prepare({words.begin() + 1, words.end()});
  }
  return longspan::tool::main_words(words);
}
