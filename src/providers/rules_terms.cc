#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>

#include "longspan/problem.h"
#include "providers/rules.h"

namespace longspan {
namespace {

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "provider"};
}

struct NamedView {
  std::string_view name;
  const TensorView& view;
};

std::string shape(const TensorView& view) {
  return fmt::format("[{}, {}, {}, {}]", view.batch, view.seq, view.heads, view.dim);
}

/// Whether there is a tensor to look at; an error when that differs from what was prepared.
Result<bool> present(const NamedView& t, bool wanted) {
  const TensorView& view = t.view;
  if (!wanted && view.data != nullptr) {
    return invalid(fmt::format("{} is given, the plan was prepared without: leave it out", t.name));
  }
  if (!wanted) return false;
  if (view.pages != nullptr) return invalid(fmt::format("{} is paged: give it whole", t.name));
  if (view.data == nullptr && view.rows() * view.heads * view.dim > 0) {
    return invalid(fmt::format("{} has shape {} but no data", t.name, shape(view)));
  }
  return true;
}

Status fits_type(const NamedView& t, DType dtype, Carries carries) {
  const DType here = t.view.dtype;
  const bool any = here == DType::kF32 || here == DType::kF64;
  if (here == accumulator(dtype) || (carries == Carries::kAnyFloat && any)) return {};
  return invalid(fmt::format("{} is {}, for {} it must be {}", t.name, name(here), name(dtype),
                             name(accumulator(dtype))));
}

/// One value for each query head of the problem.
Status fits_per_head(const TileProblem& p, int64_t head_begin, const NamedView& t, bool wanted,
                     Carries carries) {
  LONGSPAN_TRY(const bool there, present(t, wanted));
  if (!there) return {};
  if (t.view.rows() != 1 || t.view.dim != 1 || t.view.heads < head_begin + p.heads_q) {
    return invalid(
        fmt::format("{} has shape {}, needed is [1, 1, heads, 1] with query heads {} to "
                    "{} of the problem",
                    t.name, shape(t.view), head_begin, head_begin + p.heads_q - 1));
  }
  return fits_type(t, p.dtype, carries);
}

bool per_sequence(Bias bias) { return bias == Bias::kB1 || bias == Bias::kBH; }
bool per_head(Bias bias) { return bias == Bias::k1H || bias == Bias::kBH; }
bool per_query(Bias bias) { return bias != Bias::k111S; }

Status inside(size_t tile, std::string_view what, Interval tokens, int64_t extent) {
  const int64_t last = tokens.at(tokens.size() - 1);
  if (tokens.begin >= 0 && last < extent) return {};
  return invalid(
      fmt::format("tile {} has {} {} to {}, bias has {}", tile, what, tokens.begin, last, extent));
}

Status bias_covers(Bias kind, const TensorView& bias, std::span<const PlacedTile> tiles) {
  for (size_t i = 0; i < tiles.size(); ++i) {
    const Tile& tile = tiles[i].tile;
    if (empty(tile)) continue;
    if (per_sequence(kind) && (tile.sequence < 0 || tile.sequence >= bias.batch)) {
      return invalid(
          fmt::format("tile {} is of sequence {}, bias has {}", i, tile.sequence, bias.batch));
    }
    if (per_query(kind)) LONGSPAN_CHECK_OK(inside(i, "queries", tile.q, bias.seq));
    LONGSPAN_CHECK_OK(inside(i, "keys", tile.k, bias.dim));
  }
  return {};
}

Status fits_bias(const TileProblem& p, const ScoreTerms& terms, std::span<const PlacedTile> tiles) {
  const TensorView& bias = terms.bias;
  const Bias kind = p.features.bias;
  LONGSPAN_TRY(const bool there, present({"bias", bias}, kind != Bias::kNone));
  if (!there) return {};
  if (bias.dtype != p.dtype) {
    return invalid(
        fmt::format("bias is {}, the plan was prepared for {}", name(bias.dtype), name(p.dtype)));
  }
  const auto refused = [&](std::string_view extent, int64_t value, std::string needed) {
    return invalid(fmt::format("bias has shape {}: {} {}, for bias={} it must be {}", shape(bias),
                               extent, value, name(kind), needed));
  };
  if (!per_sequence(kind) && bias.batch != 1) return refused("batch", bias.batch, "1");
  if (!per_query(kind) && bias.seq != 1) return refused("queries", bias.seq, "1");
  if (!per_head(kind) && bias.heads != 1) return refused("heads", bias.heads, "1");
  const int64_t heads = terms.head_begin + p.heads_q;
  if (per_head(kind) && bias.heads < heads) {
    return refused("heads", bias.heads, fmt::format("at least {}", heads));
  }
  return bias_covers(kind, bias, tiles);
}

Status fits_values(const TileProblem& p, const ScoreTerms& terms) {
  if (terms.head_begin < 0) {
    return invalid(fmt::format("head_begin {} must be at least 0", terms.head_begin));
  }
  if (!p.features.softcap && terms.softcap != 0) {
    return invalid(
        fmt::format("softcap {}, the plan was prepared without: it must be 0", terms.softcap));
  }
  if (p.features.softcap && !(terms.softcap > 0 && std::isfinite(terms.softcap))) {
    return invalid(fmt::format("softcap {} must be finite and above 0", terms.softcap));
  }
  const double probability = terms.dropout.probability;
  if (!p.features.dropout && probability != 0) {
    return invalid(
        fmt::format("dropout {}, the plan was prepared without: it must be 0", probability));
  }
  if (!(probability >= 0 && probability < 1)) {
    return invalid(fmt::format("dropout {} must be at least 0 and below 1", probability));
  }
  return {};
}

Status fits_modification(const TileProblem& p, const Modification* modification) {
  const std::optional<std::string>& key = p.features.modification;
  if (!key && modification == nullptr) return {};
  if (!key) return invalid("a modification is given, the plan was prepared without: leave it out");
  if (modification == nullptr) {
    return invalid(
        fmt::format("no modification, the plan was prepared for that of key \"{}\"", *key));
  }
  if (modification->key != *key) {
    return invalid(fmt::format("modification of key \"{}\", the plan was prepared for \"{}\"",
                               modification->key, *key));
  }
  if (p.direction == Direction::kBackward && modification->score && !modification->derivative) {
    return invalid(
        fmt::format("modification \"{}\" changes scores but has no derivative: backward "
                    "needs one",
                    modification->key));
  }
  return {};
}

Status fits_shared(const TileProblem& p, const ScoreTerms& terms, std::span<const PlacedTile> tiles,
                   Carries carries) {
  LONGSPAN_CHECK_OK(fits_values(p, terms));
  LONGSPAN_CHECK_OK(fits_modification(p, terms.modification));
  LONGSPAN_CHECK_OK(
      fits_per_head(p, terms.head_begin, {"slopes", terms.slopes}, p.features.alibi, carries));
  return fits_bias(p, terms, tiles);
}

}  // namespace

Status fits_terms(const TileProblem& p, const ForwardTiles& t, Carries carries) {
  LONGSPAN_CHECK_OK(fits_shared(p, t.terms, t.tiles, carries));
  return fits_per_head(p, t.terms.head_begin, {"max_logit", t.max_logit}, p.features.max_logit,
                       carries);
}

Status fits_terms(const TileProblem& p, const BackwardTiles& t, Carries carries) {
  LONGSPAN_CHECK_OK(fits_shared(p, t.terms, t.tiles, carries));
  const TensorView& bias = t.terms.bias;
  LONGSPAN_TRY(const bool there, present({"dbias", t.dbias}, p.features.bias != Bias::kNone));
  if (!there) return {};
  LONGSPAN_CHECK_OK(fits_type({"dbias", t.dbias}, p.dtype, carries));
  if (t.dbias.batch == bias.batch && t.dbias.seq == bias.seq && t.dbias.heads == bias.heads &&
      t.dbias.dim == bias.dim) {
    return {};
  }
  return invalid(
      fmt::format("dbias has shape {}, that of bias is {}", shape(t.dbias), shape(bias)));
}

}  // namespace longspan
