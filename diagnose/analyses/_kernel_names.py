"""Names of device kernels, as data: which are communication, which are compute, and of what kind.

Patterns are matched on the *function* a kernel name states (return type, arguments and, for communication, template
arguments cut away), at the start of an identifier: a bare substring would take `my_nccl_free_gemm` for communication
or `groupnorm_kernel_dispatch_up` for expert dispatch. First match wins.
Since NCCL 2.19 the algorithm and protocol in `ncclDevKernel_*_RING_LL` are placeholders (src/device/generate.py,
best_kernel); only the operation in the name is real, and `Generic` and `SendRecv` do not even name that.

Sources: NCCL src/device/generate.py (2.4 to 2.28), RCCL, MSCCL, mscclpp, oneCCL, HCCL, NVSHMEM, DeepEP csrc/kernels,
PyTorch torch/csrc/distributed/c10d (symmetric memory, intra-node), vLLM csrc/custom_all_reduce, TensorRT-LLM and
FlashInfer comm kernels, Transformer Engine userbuffers; cuBLAS, cuDNN, CUTLASS, Triton, MIOpen, CK, hipBLASLt names.
"""

from __future__ import annotations

OPERATIONS: tuple[tuple[str, str], ...] = (
    (r"all_?to_?all|a2a(?![a-z])", "all_to_all"),
    (r"reduce_?scatter|(?<![a-z])rs(?![a-z])", "reduce_scatter"),
    (r"all_?reduce|cross_device_reduce|sum_inplace", "all_reduce"),
    (r"all_?gather", "all_gather"),
    (r"broadcast|bcast", "broadcast"),
    (r"send_?recv", "send_recv"),
    (r"p2p|(?<![a-z])(send|recv|push_?send|push_?recv)(?![a-z])|pushsend|pushrecv", "p2p"),
    (r"combine", "combine"),
    (r"dispatch", "dispatch"),
    (r"barrier", "barrier"),
    (r"(?<!all_)(?<!all)reduce(?!_?scatter)", "reduce"),
)
"""Operation that a communication kernel's name states (lower case, snake or joined); `collective` where none."""

_ID = r"(?<![A-Za-z0-9_])"
_COLLECTIVE = r"(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all(?:v)?)"

COMMUNICATION: tuple[tuple[str, str], ...] = (
    (_ID + r"(?i:nccl(?:symk?)?(?:dev)?kernel)", "nccl"),  # ncclKernel_, ncclDevKernel_, ncclSym(k)DevKernel_, ...Gin
    (_ID + r"(?i:nccl(?:all|reduce|broad|send|recv|gather|scatter|local|onerank)\w*?kernel)", "nccl"),  # 2.4 to 2.6
    (_ID + r"oneRankReduce(?![A-Za-z0-9])", "nccl"),
    (_ID + r"(?i:rccl\w*kernel)", "rccl"),
    (_ID + r"mscclKernel", "msccl"),
    (_ID + r"mscclpp(?:::|_|Kernel)", "mscclpp"),
    (_ID + r"(?:oneccl_|(?:one|x)?ccl::)", "oneccl"),
    (_ID + r"(?:hccl::|hcom_|Hccl(?:All|Reduce|Broad|Send|Recv|Scatter|Gather|Batch|Barrier))", "hccl"),
    (_ID + r"nvshmemx?i?(?:_|::)", "nvshmem"),
    (_ID + r"(?:rocshmem|rocshmemi?)_", "rocshmem"),
    (_ID + r"(?:deep_ep|dpsk::ep)::", "deep_ep"),
    (r"^(?:void )?(?:hybrid_)?(?:dispatch|combine)_impl(?:<|$)", "deep_ep"),
    (_ID + r"mori::(?:moe::)?Ep(?:Dispatch|Combine)", "mori"),
    (_ID + r"uccl::", "uccl"),
    (_ID + r"c10d::(?!checkForNaN|.*checkForNaN)", "torch_symmetric_memory"),
    (_ID + r"multimem_\w+", "torch_symmetric_memory"),
    (_ID + r"(?:one|two)_shot_all_?reduce\w*", "torch_symmetric_memory"),
    (_ID + r"(?:one|two)ShotAllReduce\w*|" + _ID + r"hybridCubeMeshAllReduce\w*", "torch_intra_node"),
    (_ID + r"cross_device_reduce_\w+", "custom_all_reduce"),
    (_ID + r"reduce_scatter_cross_device\w*|" + _ID + r"allgather_lastdim\w*", "custom_all_reduce"),
    (_ID + r"quickreduce::|" + _ID + r"allreduce_prototype_\w+", "custom_all_reduce"),
    (_ID + r"\w*allreduce_fusion\w*", "fused_all_reduce"),
    (_ID + r"ar_fusion::|" + _ID + r"moe_?reduce_?all_?reduce\w*|" + _ID + r"moe_?all_?reduce\w*", "fused_all_reduce"),
    (_ID + r"\w*lamport\w*", "fused_all_reduce"),
    (_ID + r"(?:mnnvl_|moe_comm::|moeAll[Tt]oAll\w*|moe_?a2a_\w+)", "moe_all_to_all"),
    (_ID + r"k?userbuffers_\w+", "userbuffers"),
    # Anything else that names a collective, unless it is a fused kernel that computes as well (see FUSED).
    (r"(?<![A-Za-z0-9])(?:k|custom_?|my_?|fast_?|nvls_?|ring_?|intra_?node_?|inter_?node_?)?" + _COLLECTIVE
     + r"(?:_kernel|Kernel|_coalesced|_into_tensor|_inplace|_oneshot|_twoshot|_[0-9]|_intra|_inter|$)",
     "named_collective"),
    (_ID + r"(?:Custom|Fast|Nvls|OneShot|TwoShot)?(?:AllReduce|AllGather|ReduceScatter|AllToAll)(?:Kernel)?(?![a-z])",
     "named_collective"),
)  # fmt: skip
"""(pattern on the function name, library). Case matters unless the pattern says otherwise."""

FUSED = (
    r"(?i)^triton_(?:poi|red|per|tem|mm|for|unk)_|gemm|matmul|(?<![a-z])warp_?all_?reduce|block_?all_?reduce|flash_attn"
)
"""Names that mention a collective, yet compute: Inductor names kernels after the operators around them."""

COMPUTE: tuple[tuple[str, str], ...] = (
    (r"^triton_(?:poi|red|per|for|unk)_", "triton"),
    (r"(?i)flash_?(?:attn|attention|fwd|bwd|mla|infer)|flash::|fmha|sdpa|(?<![a-z])mha_|attention(?!_mask)|mem_?eff|"
     r"(?<![a-z])attn_|_attn(?![a-z])|paged_attn|aiter::(?:fmha|mha|mla)|FlashAttn|flex_attention", "attention"),
    (r"(?i)fprop|dgrad|wgrad|conv(?:olution|olve|2d|3d|_)|flip_filter|implicit_?gemm|scudnn|winograd|igemm_(?:fwd|bwd|wrw)|im2col|col2im"
     r"|miopenSp3AsmConv|ConvBin|gridwise_convolution|grouped_conv|depthwise|naive_conv|computeB?OffsetsKernel|cask_cudnn"
     r"|computeWgrad|first_layer_\w+_kernel|gcnAsmConv|SubTensorOp|dw_conv", "conv"),
    (r"(?i)gemm|gemv|epilogue::impl|gemmk1|nvjet|^Cijk_|cublas|(?<![a-z])matmul|_mm_|splitK_?reduce|cutlass(?:_\w+)?::(?:Kernel|device)|"
     r"^ampere_|^volta_|^turing_|^hopper_|^maxwell_|^sm\d\d_xmma|rocblas|hipblaslt|magma_|dot_kernel|reduce_1Block|"
     r"kernel_gemm|xdl|bmm|scal_kernel|asum_kernel|axpy_kernel|trsm|getrf|potrf|cusolver|deep_gemm|marlin|gptq|grouped_mm",
     "gemm"),
    (r"(?i)layer_?norm|rms_?norm|group_?norm|batch_?norm|(?<![a-z])bn_(?:fw|bw)|instance_norm|RowwiseMoments|GammaBeta|"
     r"ComputeInternalGradients|_norm_fwd|_norm_bwd|norm_kernel|BatchNorm|weight_norm|l2norm", "norm"),
    (r"(?i)multi_tensor_apply|FusedAdam|fused_adam|adamw?_|(?<![a-z])adam(?![a-z])|lamb_|sgd_|DistAdam|fused_sgd|"
     r"foreach|multi_tensor", "optimizer"),
    (r"(?i)softmax|cross_?entropy|nll_?loss|NLLCriterion|log_softmax|mse_|loss", "softmax_loss"),
    (r"(?i)embedding|bounds_check_indices|split_embedding|tbe_|jagged|(?<![a-z])permute_(?:1d|2d|sparse)|fbgemm",
     "embedding"),
    (r"(?i)rope|rotary|silu|gelu|swiglu|(?<![a-z])relu|act_and_mul|dropout|sigmoid|bias_", "elementwise"),
    (r"(?i)moe_|topk_gating|expert|(?<![a-z])permute_kernel|unpermute|moe(?:Align|Sum|Gate)|grouped_topk", "moe"),
    (r"(?i)distribution_|philox|bernoulli|curand", "random"),
    (r"(?i)index_elementwise|index_?(?:put|select|fill|copy|add)|gather_kernel|scatter_kernel", "index_sort"),
    (r"(?i)elementwise|at::native::.*copy|CatArray|direct_copy|fill|where_|clamp|TensorIterator|tensor_kernel_scan|"
     r"(?<![a-z])copy_kernel|convert_|cast_|quantize|transpose|nchwToNhwc|nhwcToNchw|permute|op_tensor|scalePacked|"
     r"tensorTransform|OpTensor|Op[12]dTensor|addcmul|binary_|unary_|pointwise", "elementwise"),
    (r"(?i)max_?pool|avg_?pool|pooling|upsample|interpolate|grid_sampl|nms|roi_align", "pool"),
    (r"(?i)reduce_kernel|(?<![a-z])reduc|cub::.*Reduce|sum_kernel|norm_two|argmax|Norm", "reduction"),
    (r"(?i)index|gather|scatter|sort|radix|scan|topk|unique|cub::|thrust::|histogram|masked|nonzero|tril|triu|"
     r"searchsorted|bincount|one_hot|compare", "index_sort"),
    (r"(?i)distribution|philox|random|bernoulli|curand|rng", "random"),
    (r"(?i)fft|spmm|sparse|cusparse|lstm|rnn|gru|ctc", "other"),
    (r"(?i)^triton_|_triton|triton_", "triton"),
    (r"checkForNaN", "reduction"),
)  # fmt: skip
"""(pattern in the name before its parameters, category). Positive evidence that a kernel computes."""

COMPUTE_LIBRARIES = (
    r"at::|caffe2::|torch::|apex|cudnn|MIOpen|miopen|^ck::|_ZN2ck|ck_tile|cutlass|xmma|transformer_engine|"
    r"flashinfer|tensorrt_llm|liger|xformers|mamba|causal_conv|selective_scan"
)
"""Libraries that compute, in the path of the function: a type among its parameters is no proof."""

COPIES: tuple[tuple[str, str], ...] = (
    (r"(?i)memset|fillbuffer", "memset"),
    (r"(?i)HtoD|HostToDevice|H2D", "memcpy_h2d"),
    (r"(?i)DtoH|DeviceToHost|D2H", "memcpy_d2h"),
    (r"(?i)PtoP|PeerToPeer|P2P", "memcpy_p2p"),
    (r"(?i)DtoD|DeviceToDevice|D2D", "memcpy_d2d"),
    (r"(?i)HtoH|HostToHost", "memcpy_h2h"),
)
"""(pattern, category) for copies and sets; `memcpy` where the direction is not named."""

COMPUTE_OPERATORS = (
    r"^(?:aten|autograd|torchvision|torchaudio|fbgemm|xformers|flash_attn\w*|flash_attn_\d|mkldnn|quantized|prims|inductor"
    r"|torch_sparse|torchao|transformer_engine\w*|apex|mamba_ssm|causal_conv1d|deep_gemm|triton|profiler)::"
    r"|^Torch-Compiled Region|^CompiledFunction|^## Call CompiledFxGraph|^autograd::engine::evaluate_function"
    r"|Backward\d*(?:>)?$|^triton_"
)
"""Operators that compute on the device whatever the kernel is called."""

COMMUNICATION_OPERATORS = (
    r"^(?:record_param_comms$|c10d::|_c10d_functional|symm_mem::|nccl:|xccl:|hccl:|_dtensor::shard_dim_alltoall|deep_ep"
    r"|vllm::(?:all_|reduce_scatter|outplace_all|inplace_all)|_C_custom_ar::|sgl_kernel::all_reduce|nvshmem)"
)
"""Operators whose kernels communicate, or copy for the sake of it; alone they prove nothing about a kernel."""
