// What the enumerators of a problem are called in its text.
#include "longspan/problem.h"

namespace longspan {

std::string_view name(Direction direction) {
  return direction == Direction::kForward ? "forward" : "backward";
}
std::string_view name(MaskKind kind) { return kind == MaskKind::kNone ? "none" : "causal"; }
std::string_view name(Align align) {
  return align == Align::kTopLeft ? "top_left" : "bottom_right";
}
std::string_view name(Layout layout) {
  switch (layout) {
    case Layout::kBSHD: return "bshd";
    case Layout::kSBHD: return "sbhd";
    case Layout::kTHD: return "thd";
  }
  return "";
}
std::string_view name(Alibi alibi) { return alibi == Alibi::kNone ? "none" : "default"; }
std::string_view name(Bias bias) {
  switch (bias) {
    case Bias::kNone: return "none";
    case Bias::k11: return "1,1";
    case Bias::kB1: return "b,1";
    case Bias::k1H: return "1,h";
    case Bias::kBH: return "b,h";
    case Bias::k111S: return "1,1,1,s";
  }
  return "";
}
std::string_view name(Sink sink) {
  switch (sink) {
    case Sink::kNone: return "none";
    case Sink::kOffByOne: return "off_by_one";
    case Sink::kLearnable: return "learnable";
  }
  return "";
}
std::string_view name(Fp8 recipe) {
  switch (recipe) {
    case Fp8::kNone: return "none";
    case Fp8::kDelayed: return "delayed";
    case Fp8::kCurrent: return "current";
    case Fp8::kMxfp8: return "mxfp8";
  }
  return "";
}

}  // namespace longspan
