// Entries of the test double: what they say of themselves, and what they were last called with.
#pragma once

#include <cstdint>

namespace longspan::prepared::testing {

/// A signature with a None in the place of each slot that is off.
inline constexpr const char* kForwardFull =
    "mQ: Tensor([n0, n1, n2, n3], bfloat16), mK: Tensor([n4, n5, n6, n7], bfloat16), "
    "mV: Tensor([n8, n9, n10, n11], bfloat16), mO: Tensor([n12, n13, n14, n15], bfloat16), "
    "mLSE: Tensor([n16, n17, n18], float32), softmax_scale: float32, mCuSeqlensQ: None, "
    "mCuSeqlensK: None, mSeqUsedQ: None, mSeqUsedK: None, mPageTable: None, "
    "window_size_left: None, window_size_right: None, learnable_sink: None, "
    "blocksparse_tensors: None, aux_data: Tuple[None, None], mCuTotalMBlocks: None, "
    "mCuTotalSplitsMBlocks: None";
inline constexpr const char* kForwardPacked =
    "mQ: Tensor([n0, n1, n2], bfloat16), mK: Tensor([n3, n4, n5], bfloat16), "
    "mV: Tensor([n6, n7, n8], bfloat16), mO: Tensor([n9, n10, n11], bfloat16), "
    "mLSE: Tensor([n12, n13], float32), softmax_scale: float32, "
    "mCuSeqlensQ: Tensor([n14], int32), mCuSeqlensK: Tensor([n15], int32), mSeqUsedQ: None, "
    "mSeqUsedK: None, mPageTable: None, window_size_left: None, window_size_right: None, "
    "learnable_sink: None, blocksparse_tensors: None, aux_data: Tuple[None, None], "
    "mCuTotalMBlocks: None, mCuTotalSplitsMBlocks: None";
inline constexpr const char* kForwardWindow =
    "mQ: Tensor([n0, n1, n2, n3], bfloat16), mK: Tensor([n4, n5, n6, n7], bfloat16), "
    "mV: Tensor([n8, n9, n10, n11], bfloat16), mO: Tensor([n12, n13, n14, n15], bfloat16), "
    "mLSE: Tensor([n16, n17, n18], float32), softmax_scale: float32, mCuSeqlensQ: None, "
    "mCuSeqlensK: None, mSeqUsedQ: None, mSeqUsedK: None, mPageTable: None, "
    "window_size_left: int32, window_size_right: int32, learnable_sink: None, "
    "blocksparse_tensors: None, aux_data: Tuple[None, None], mCuTotalMBlocks: None, "
    "mCuTotalSplitsMBlocks: None";
inline constexpr const char* kBackwardPre =
    "mO: Tensor([n0, n1, n2, n3], bfloat16), mdO: Tensor([n0, n1, n2, n3], bfloat16), "
    "mPdPsum: Tensor([n0, n2, n4], float32), mLSE: Tensor([n0, n2, n1], float32), "
    "mLSElog2: Tensor([n0, n2, n4], float32), mdQaccum: Tensor([n0, n2, n5], float32), "
    "mCuSeqlensQ: None, mSeqUsedQ: None, mdLSE: None, mRowMax: None, mScaleP: None, "
    "softmax_scale: float32, mCuTotalMBlocks: None, mOlo: None";
/// The operands of the main kernel of a backward, before its counters.
#define LONGSPAN_BACKWARD_OPERANDS                                                          \
  "mQ: Tensor([n0, n1, n2, n3], bfloat16), mK: Tensor([n4, n5, n6, n7], bfloat16), "        \
  "mV: Tensor([n8, n9, n10, n11], bfloat16), mdO: Tensor([n12, n13, n14, n15], bfloat16), " \
  "mLSE: Tensor([n16, n17, n18], float32), mdPsum: Tensor([n19, n20, n21], float32), "      \
  "mdQaccum: Tensor([n22, n23, n24], float32), mdK: Tensor([n25, n26, n27], float32), "     \
  "mdV: Tensor([n28, n29, n30], float32), softmax_scale: float32, mCuSeqlensQ: None, "      \
  "mCuSeqlensK: None, mSeqUsedQ: None, mSeqUsedK: None, window_size_left: None, "           \
  "window_size_right: None, "
#define LONGSPAN_BACKWARD_REST \
  "aux_data: Tuple[None, None], blocksparse_tensors: None, mCuTotalMBlocks: None"
inline constexpr const char* kBackward = LONGSPAN_BACKWARD_OPERANDS
    "mdQ_semaphore: None, mdK_semaphore: None, mdV_semaphore: None, " LONGSPAN_BACKWARD_REST;
inline constexpr const char* kBackwardInTurns = LONGSPAN_BACKWARD_OPERANDS
    "mdQ_semaphore: Tensor([n31, n32, n33, 1], int32), "
    "mdK_semaphore: Tensor([n34, n35, n36, 2], int32), "
    "mdV_semaphore: Tensor([n37, n38, n39, 2], int32), " LONGSPAN_BACKWARD_REST;
inline constexpr const char* kBackwardPost =
    "mdQaccum: Tensor([n0, n1, n2], float32), mdQ: Tensor([n0, n3, n1, n4], bfloat16), "
    "scale: float32, mCuSeqlensQ: None, mSeqUsedQ: None, sink_tensors: None, "
    "mCuTotalMBlocks: None";

/// What every list of FROST begins with.
#define LONGSPAN_FROST_COMMON                                                                \
  "q_ptr: DataPointer, k_ptr: DataPointer, v_ptr: DataPointer, o_ptr: DataPointer, "         \
  "lse_ptr: DataPointer, sinks_ptr: DataPointer, meta_ptr: DataPointer, "                    \
  "o_desc_ptr: DataPointer, problem_size: Tuple[int32, int32, int32, int32, int32, int32], " \
  "q_strides: Tuple[int64, int64, int64], k_strides: Tuple[int64, int64, int64], "           \
  "v_strides: Tuple[int64, int64, int64], o_strides: Tuple[int64, int64, int64], "           \
  "lse_strides: Tuple[int64, int64, int64], lse_ext: int64, "
#define LONGSPAN_FROST_SM100                                                                \
  LONGSPAN_FROST_COMMON                                                                     \
  "scale_softmax_log2: float32, n_thd_units: int32, seq_q_lens_addr: int64, "               \
  "thd_q_lens_ptr: None, thd_kv_lens_ptr: None, thd_lens_form: None, o_partial_ptr: None, " \
  "block_table_ptr: None, block_table_v_ptr: None, table_strides: Tuple[int64, int64], "    \
  "n_pages: int32, "
#define LONGSPAN_FROST_SCORES                       \
  LONGSPAN_FROST_SM100                              \
  "score_max_ptr: None, score_sum_exp_ptr: None, "  \
  "score_max_strides: Tuple[int64, int64, int64], " \
  "score_sum_exp_strides: Tuple[int64, int64, int64], "
#define LONGSPAN_FROST_TERMS                                                            \
  LONGSPAN_FROST_SCORES                                                                 \
  "bias_ptr: None, bias_strides: Tuple[int64, int64, int64], "                          \
  "bias_extents: Tuple[int32, int32], kv_mask_ptr: None, kv_mask_batch_stride: int64, " \
  "inv_scale_softmax: float32, "

inline constexpr const char* kFrost23 = LONGSPAN_FROST_COMMON
    "scale_softmax: float32, seq_q_lens_addr: int64, thd_q_lens_ptr: None, "
    "thd_kv_lens_ptr: None, thd_lens_form: None, n_thd_units: int32, thd_max_sq: int32, "
    "stream: Stream";
inline constexpr const char* kFrost27 = LONGSPAN_FROST_SM100 "stream: Stream";
inline constexpr const char* kFrost28 =
    LONGSPAN_FROST_SM100 "table_v_strides: None, stream: Stream";
inline constexpr const char* kFrostGated30 = LONGSPAN_FROST_SM100
    "gate_ptr: None, gate_strides: Tuple[int64, int64, int64], "
    "thd_origin_ptrs: None, stream: Stream";
inline constexpr const char* kFrostDecode30 = LONGSPAN_FROST_SM100
    "ragged_q_addr: int64, ragged_q_div: int64, thd_origin_ptrs: None, "
    "stream: Stream";
inline constexpr const char* kFrost31 = LONGSPAN_FROST_SCORES "stream: Stream";
inline constexpr const char* kFrost37 = LONGSPAN_FROST_TERMS "stream: Stream";
inline constexpr const char* kFrost38 =
    LONGSPAN_FROST_TERMS "thd_origin_ptrs: None, stream: Stream";
/// As many slots as kFrost37, of another list.
inline constexpr const char* kFrostFp8 = LONGSPAN_FROST_SM100
    "descale_q_ptr: DataPointer, descale_k_ptr: DataPointer, descale_v_ptr: DataPointer, "
    "scale_o_ptr: None, amax_o_ptr: DataPointer, sf_o_ptr: None, gate_ptr: None, "
    "gate_strides: Tuple[int64, int64, int64], table_v_strides: None, thd_origin_ptrs: None, "
    "stream: Stream";

/// An argument of the last call.
struct Seen {
  int32_t type = 0;
  int64_t integer = 0;  // or an address
  double number = 0;
  int64_t size = 0;  // of tuples, or the rank of tensors
  int64_t items[6] = {};
};

/// Of the last call of an entry that records.
struct Record {
  Seen arguments[64];
  int64_t count = 0;
  void* stream = nullptr;  // the one set for device 0
  int64_t calls = 0;
};

}  // namespace longspan::prepared::testing
