"""The list of operations that act on each example alone, by the names of torch's operators, and the rule of each.

An operation that is not listed is not trusted with examples. `tests/gradients/test_operations.py` changes one example
and compares the others, for every entry.
"""

from __future__ import annotations

from tacit.gradients.checks import axes, indexing
from tacit.gradients.checks.axes import AxisRule, along, last, one_axis

_POINTWISE = """
abs acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh bernoulli
bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor cauchy ceil celu clamp clamp_max
clamp_min clone complex conj_physical copy copysign cos cosh deg2rad digamma div elu eq erf erfc erfinv exp exp2
expm1 exponential floor floor_divide fmax fmin fmod frac ge gelu geometric gt hardshrink hardsigmoid hardswish
hardtanh heaviside hypot i0 igamma igammac isfinite isinf isnan isneginf isposinf isreal ldexp le leaky_relu lerp
lgamma log log10 log1p log2 log_normal log_sigmoid_forward logaddexp logaddexp2 logical_and logical_not logical_or
logical_xor logit lt masked_fill maximum minimum mish mul mvlgamma nan_to_num native_dropout ne neg nextafter normal
polar polygamma positive pow poisson rad2deg random real reciprocal relu remainder resolve_conj resolve_neg round
rrelu_with_noise rsqrt rsub selu sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink special_entr
special_erfcx special_i0e special_i1 special_i1e special_log_ndtr special_ndtr special_ndtri special_xlog1py
special_zeta sqrt square sub tan tanh threshold trunc uniform where xlogy _to_copy _prelu_kernel imag
_conj_physical _fused_dropout sigmoid_backward tanh_backward threshold_backward gelu_backward silu_backward
elu_backward leaky_relu_backward hardtanh_backward softplus_backward log_sigmoid_backward native_dropout_backward
"""
_POINTWISE_LOSSES = """
mse_loss binary_cross_entropy smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy_with_logits
"""
_REDUCTIONS = """
sum mean amax amin max min any all prod std var std_mean var_mean median nanmedian mode logsumexp linalg_vector_norm
norm argmax argmin nansum count_nonzero aminmax kthvalue
"""
_ALONG = """
_softmax _safe_softmax _log_softmax cumsum cumprod cummax cummin logcumsumexp _logcumsumexp topk glu
"""
_REORDERING = "sort argsort flip roll"
_MIXING = "bincount histc _unique2 unique_dim unique_consecutive _pdist_forward"
_LAST_ONE = """
avg_pool1d max_pool1d_with_indices adaptive_avg_pool1d adaptive_max_pool1d reflection_pad1d replication_pad1d
upsample_linear1d upsample_nearest1d _upsample_nearest_exact1d
"""
_LAST_TWO = """
max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d upsample_nearest2d
upsample_bilinear2d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_nearest_exact2d
reflection_pad2d replication_pad2d tril triu linalg_inv_ex linalg_cholesky_ex cholesky
linalg_qr linalg_svd _linalg_svd _linalg_eigh _linalg_det _linalg_slogdet linalg_det linalg_slogdet linalg_matrix_exp
linalg_lu_factor_ex linalg_lu cholesky_inverse matrix_exp linalg_eig linalg_eigvals
"""
_LAST_THREE = """
max_pool3d_with_indices avg_pool3d _adaptive_avg_pool3d adaptive_avg_pool3d adaptive_max_pool3d upsample_nearest3d
upsample_trilinear3d reflection_pad3d replication_pad3d pixel_shuffle pixel_unshuffle
"""

OPERATIONS: dict[str, AxisRule] = {
    **dict.fromkeys(_POINTWISE.split(), axes.pointwise),
    **dict.fromkeys(("zero", "fill"), axes.constant),
    **dict.fromkeys(_POINTWISE_LOSSES.split(), axes.pointwise_loss),
    "mse_loss_backward": axes.gradient_of_loss,
    **dict.fromkeys(_REDUCTIONS.split(), axes.reduction),
    **dict.fromkeys(_ALONG.split(), along("dim", "dims")),
    **dict.fromkeys(_REORDERING.split(), indexing.reordering),
    **dict.fromkeys(_MIXING.split(), axes.mixing),
    **dict.fromkeys(_LAST_ONE.split(), last(1)),
    **dict.fromkeys(_LAST_TWO.split(), last(2)),
    **dict.fromkeys(_LAST_THREE.split(), last(3)),
    **dict.fromkeys(axes.FACTORS, axes.product),
    **dict.fromkeys(("_fft_r2c", "_fft_c2c", "_fft_c2r"), along("dim")),
    **dict.fromkeys(("gather", "scatter", "scatter_add", "scatter_reduce"), indexing.selection),
    **dict.fromkeys(("index_select", "index_add", "index_copy", "index_fill"), indexing.by_index),
    **dict.fromkeys(("_native_batch_norm_legit", "native_batch_norm", "_native_batch_norm_legit_no_training",
                     "_batch_norm_no_update", "_batch_norm_with_update"), axes.batch_norm),
    **dict.fromkeys(("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
                     "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention"), axes.attention),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward", "multi_margin_loss"), axes.class_loss),
    **dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d", "_grid_sampler_2d_cpu_fallback"), axes.grid_sampling),
    **dict.fromkeys(("bucketize", "searchsorted"), indexing.search),
    **dict.fromkeys(("_linalg_solve_ex", "linalg_lu_solve"), axes.solving),
    "im2col": one_axis(0, "self", dims=4),
    "col2im": one_axis(0, "self", dims=3),
    "multinomial": one_axis(0, "self", dims=2),
    "channel_shuffle": one_axis(0, "self"),
    "fractional_max_pool2d": axes.random_pooling,
    "linalg_solve_triangular": last(2, "self", "B"),
    "linalg_ldl_factor_ex": last(2, "self"),
    "affine_grid_generator": one_axis(0, "theta"),
    "convolution": one_axis(0, "input", "weight", "bias"),
    "embedding": indexing.embedding,
    "_embedding_bag": indexing.embedding_bag,
    "_embedding_bag_forward_only": indexing.embedding_bag,
    "cat": indexing.concatenation,
    "stack": indexing.stacking,
    "index": indexing.indexing,
    "index_put": indexing.index_put,
    "_unsafe_index": indexing.indexing,
    "_unsafe_index_put": indexing.index_put,
    "native_layer_norm": axes.layer_norm,
    "_fused_rms_norm": axes.layer_norm,
    "native_group_norm": axes.group_norm,
    "_cdist_forward": axes.distances,
    "repeat": indexing.repetition,
    "constant_pad_nd": indexing.padding,
    "renorm": axes.renorm,
}  # fmt: skip

# One number everywhere, or memory that is not initialised.
_CONSTANTS = "zeros ones full empty empty_strided scalar_tensor zero fill"
CONSTANTS = frozenset(_CONSTANTS.split())
_RANDOM = "rand randn randint bernoulli uniform normal exponential random cauchy log_normal geometric"
RANDOM = frozenset(_RANDOM.split())
# These hand values of the examples, or a size that depends on them, to Python, which could then do anything with them.
_HOST = """
_local_scalar_dense is_nonzero equal item nonzero masked_select allclose
_unique2 unique_dim unique_consecutive repeat_interleave
"""
HOST = frozenset(_HOST.split())
