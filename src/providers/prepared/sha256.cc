#include "providers/prepared/sha256.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <sstream>
#include <utility>

#include "providers/prepared/errors.h"

namespace longspan::prepared {
namespace {

constexpr size_t kBlock = 64;

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

class Sha256 {
 public:
  void add(std::span<const uint8_t, kBlock> block) {
    std::array<uint32_t, 64> w;
    for (size_t i = 0; i < 16; ++i) w[i] = big_endian(block.subspan(4 * i).first<4>());
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15];
      const uint32_t b = w[i - 2];
      const uint32_t s0 = std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3);
      const uint32_t s1 = std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    std::array<uint32_t, 8> s = state_;
    for (size_t i = 0; i < 64; ++i) turn(s, kRounds[i] + w[i]);
    for (size_t i = 0; i < 8; ++i) state_[i] += s[i];
  }

  std::string text() const {
    std::string result;
    for (const uint32_t word : state_) result += fmt::format("{:08x}", word);
    return result;
  }

 private:
  static uint32_t big_endian(std::span<const uint8_t, 4> b) {
    return uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | uint32_t{b[3]};
  }
  static void turn(std::array<uint32_t, 8>& s, uint32_t input) {
    const uint32_t s1 = std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25);
    const uint32_t chosen = (s[4] & s[5]) ^ (~s[4] & s[6]);
    const uint32_t first = s[7] + s1 + chosen + input;
    const uint32_t s0 = std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22);
    const uint32_t most = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
    s = {first + s0 + most, s[0], s[1], s[2], s[3] + first, s[4], s[5], s[6]};
  }

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
};

std::string sha256_of_rest(std::istream& file) {
  Sha256 sum;
  uint64_t bytes = 0;
  std::array<uint8_t, kBlock> block{};
  size_t held = 0;
  while (true) {
    file.read(reinterpret_cast<char*>(block.data()), kBlock);
    held = static_cast<size_t>(file.gcount());
    bytes += held;
    if (held < kBlock) break;
    sum.add(block);
  }
  // A one bit, zeros, and the length in bits as 64 bits at the end of a block.
  std::memset(block.data() + held, 0, kBlock - held);
  block[held] = 0x80;
  if (held + 1 > kBlock - 8) {
    sum.add(block);
    block.fill(0);
  }
  for (size_t i = 0; i < 8; ++i) block[kBlock - 1 - i] = static_cast<uint8_t>(bytes * 8 >> (8 * i));
  sum.add(block);
  return sum.text();
}

}  // namespace

Result<std::string> sha256_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string sum = file ? sha256_of_rest(file) : "";
  if (sum.empty() || file.bad()) return refused(fmt::format("{} cannot be read", path));
  return sum;
}

std::string sha256_of_text(std::string text) {
  std::istringstream stream(std::move(text));
  return sha256_of_rest(stream);
}

}  // namespace longspan::prepared
