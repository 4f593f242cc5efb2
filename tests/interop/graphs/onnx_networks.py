"""Small networks of many kinds; each function builds one and returns the names of its outputs."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnx_network import BATCH, RUNTIME

NETWORKS = {}


def network(opset=18):
    """Register the function that builds a network."""

    def register(build):
        NETWORKS[build.__name__] = (build, opset)
        return build

    return register


@network()
def residual_convolutions(net):
    x = net.convolution(net.input(BATCH, 3, 64, 64), (3, 32), (32, 32), strides=[2, 2])
    norm = [net.weight(32), net.weight(32), net.weight(32, counts=False), net.weight(32, counts=False)]
    x = net.run("Relu", net.run("BatchNormalization", x, *norm))
    x = net.run("Add", x, net.convolution(x, (32, 32), (32, 32)))
    return net.linear(net.run("Flatten", net.run("GlobalAveragePool", x)), BATCH, (32, 10))


@network()
def depthwise_convolutions_with_excitation(net):
    x = net.convolution(net.input(BATCH, 3, 32, 32), (3, 96), (32, 32))
    x = net.convolution(x, (96, 96), (32, 32), groups=96)
    scale = net.convolution(net.run("GlobalAveragePool", x), (96, 24), (1, 1), kernel=1)
    return net.run("Mul", x, net.run("HardSigmoid", net.convolution(scale, (24, 96), (1, 1), kernel=1)))


@network()
def u_net_with_transposed_convolutions(net):
    whole = net.convolution(net.input(BATCH, 3, 64, 64), (3, 16), (64, 64))
    half = net.run("MaxPool", whole, kernel_shape=[2, 2], strides=[2, 2])
    up = net.convolution(half, (16, 16), (32, 32), kernel=2, transposed=True, strides=[2, 2], pads=[0] * 4)
    return net.convolution(net.run("Concat", whole, up, axis=1), (32, 2), (64, 64))


@network(opset=21)
def u_net_of_diffusion(net):
    x = net.convolution(net.input(BATCH, 4, 32, 32), (4, 64), (32, 32))
    x = net.run("GroupNormalization", x, net.weight(64), net.weight(64), num_groups=8)
    x = net.run("Transpose", net.reshape(x, BATCH, 64, 1024), perm=[0, 2, 1])
    x = net.attention(x, 1024, 64, 4, net.input(BATCH, 77, 64), 77)
    x = net.reshape(net.run("Transpose", x, perm=[0, 2, 1]), BATCH, 64, 32, 32)
    x = net.run("Resize", x, "", net.constant([1, 1, 2, 2], np.float32), mode="nearest")
    return net.convolution(x, (64, 4), (64, 64))


@network()
def local_response_norm_and_dropout(net):
    x = net.run("LRN", net.convolution(net.input(BATCH, 3, 16, 16), (3, 32), (16, 16)), size=5)
    x, _ = net.run("Dropout", net.run("Flatten", x), outputs=2)
    return net.linear(x, BATCH, (32 * 256, 10))


@network()
def vision_transformer(net):
    x = net.convolution(
        net.input(BATCH, 3, 64, 64), (3, 64), (8, 8), kernel=8, strides=[8, 8], pads=[0] * 4
    )
    x = net.run("Transpose", net.reshape(x, BATCH, 64, 64), perm=[0, 2, 1])
    token = net.run("Expand", net.weight(1, 1, 64), net.constant([BATCH, 1, 64]))
    x = net.run("Add", net.run("Concat", token, x, axis=1), net.weight(1, 65, 64))
    for _ in range(4):
        x = net.block(x, 65, 64, 4)
    return net.linear(net.run("Gather", x, net.constant(0), axis=1), BATCH, (64, 10))


@network()
def mixing_of_tokens_by_a_weight_on_the_left(net):
    x = net.input(BATCH, 65, 32)
    net.flop += 2 * BATCH * 16 * 65 * 32
    return net.linear(net.run("MatMul", net.weight(16, 65), x), BATCH * 16, (32, 8))


@network()
def detection_transformer(net):
    x = net.input(BATCH, 16, 64)
    queries = net.run("Expand", net.weight(1, 10, 64), net.constant([BATCH, 10, 64]))
    queries = net.attention(net.block(queries, 10, 64, 4), 10, 64, 4, x, 16)
    return net.linear(queries, BATCH * 10, (64, 92))


@network(opset=24)
def attention_whose_heads_share_keys(net):
    x = net.input(BATCH, 128, 64)
    query = net.linear(x, BATCH * 128, (64, 64))
    key, value = (net.linear(x, BATCH * 128, (64, 16)) for _ in range(2))
    net.flop += 4 * BATCH * 128 * 128 * 64
    return net.run("Attention", query, key, value, q_num_heads=8, kv_num_heads=2, is_causal=1)


@network(opset=24)
def attention_with_earlier_keys(net):
    x, *past = net.input(BATCH, 1, 64), net.input(BATCH, 2, 127, 8), net.input(BATCH, 2, 127, 8)
    query = net.heads(net.linear(x, BATCH, (64, 64)), 1, 64, 8)
    key, value = (net.heads(net.linear(x, BATCH, (64, 16)), 1, 16, 2) for _ in range(2))
    net.flop += 4 * BATCH * 128 * 64
    return net.run("Attention", query, key, value, "", *past, outputs=3)


@network(opset=23)
def rotary_positions_and_rms_norm(net):
    x = net.run("RMSNormalization", net.input(BATCH, 32, 64), net.weight(64), axis=-1)
    query, key, value = (
        net.heads(net.linear(x, BATCH * 32, (64, 64), bias=False), 32, 64, 4) for _ in range(3)
    )
    angles = [net.weight(BATCH, 32, 8, counts=False) for _ in range(2)]
    query, key = (net.run("RotaryEmbedding", each, *angles) for each in (query, key))
    net.flop += 4 * BATCH * 32 * 32 * 64
    return net.run("Attention", query, key, value, is_causal=1)


@network()
def einsum_of_heads(net):
    query, key, value = (net.input(BATCH, 32, 4, 16) for _ in range(3))
    net.flop += 4 * BATCH * 4 * 32 * 32 * 16 + 2 * BATCH * 32 * 64 * 64
    scores = net.run("Softmax", net.run("Einsum", query, key, equation="bqhd,bkhd->bhqk"), axis=-1)
    mixed = net.run("Einsum", scores, value, equation="bhqk,bkhd->bqhd")
    return net.run("Einsum", mixed, net.weight(4, 16, 64), equation="bqhd,hde->bqe")


@network()
def video(net):
    x = net.convolution(net.input(BATCH, 3, 8, 32, 32), (3, 16), (8, 32, 32))
    return net.run("GlobalAveragePool", net.convolution(x, (16, 32), (8, 32, 32)))


@network()
def speech_with_recurrent_layers(net):
    x = net.convolution(net.input(BATCH, 80, 100), (80, 64), (100,))
    x = net.run("Transpose", x, perm=[2, 0, 1])
    weights = [net.weight(2, 256, 64), net.weight(2, 256, 64), net.weight(2, 512)]
    net.flop += 2 * 100 * BATCH * 2 * 256 * (64 + 64)
    x, *_ = net.run("LSTM", x, *weights, outputs=3, hidden_size=64, direction="bidirectional")
    return net.linear(
        net.reshape(net.run("Transpose", x, perm=[0, 2, 1, 3]), 100, BATCH, 128), 100 * BATCH, (128, 29)
    )


@network()
def small_recurrent_network(net):
    weights = [net.weight(1, 48, 16), net.weight(1, 48, 16), net.weight(1, 96)]
    net.flop += 2 * 50 * BATCH * 48 * 32
    net.nodes.append(
        helper.make_node("GRU", [net.input(50, BATCH, 16), *weights], ["", "h"], hidden_size=16)
    )
    return net.linear(net.run("Squeeze", "h", net.constant([0])), BATCH, (16, 5))


@network()
def waves(net):
    x = net.input(BATCH, 32, 400)
    gates = [net.convolution(x, (32, 32), (400,), dilations=[2], pads=[2, 2]) for _ in range(2)]
    return net.run("Mul", net.run("Tanh", gates[0]), net.run("Sigmoid", gates[1]))


@network()
def recommendation(net):
    dense = net.linear(net.input(BATCH, 13), BATCH, (13, 32))
    bags = [net.run("Gather", net.weight(1000, 32), net.indices(BATCH, 3)) for _ in range(4)]
    bags = [net.run("ReduceSum", bag, net.constant([1]), keepdims=1) for bag in bags]
    joined = net.run("Concat", net.run("Unsqueeze", dense, net.constant([1])), *bags, axis=1)
    net.flop += 2 * BATCH * 5 * 5 * 32
    pairs = net.run("MatMul", joined, net.run("Transpose", joined, perm=[0, 2, 1]))
    return net.linear(net.run("Concat", dense, net.run("Flatten", pairs), axis=1), BATCH, (57, 1))


@network()
def tied_embedding(net):
    table, x = net.weight(2000, 64), net.indices(BATCH, 50)
    x = net.block(net.run("Gather", table, x), 50, 64, 4)
    net.flop += 2 * BATCH * 50 * 64 * 2000
    return net.run("MatMul", x, net.run("Transpose", table, perm=[1, 0]))


@network()
def messages_along_the_edges_of_a_graph(net):
    x, sources, targets = net.input(100, 32), net.indices(400), net.indices(400)
    rows = net.run("Expand", net.run("Unsqueeze", targets, net.constant([1])), net.constant([400, 32]))
    zeros = net.run("Expand", net.constant(0.0, np.float32), net.constant([100, 32]))
    messages = net.run("Gather", x, sources, axis=0)
    received = net.run("ScatterElements", zeros, rows, messages, axis=0, reduction="add")
    return net.linear(received, 100, (32, 64))


@network()
def state_space(net):
    x = net.linear(net.input(BATCH, 64, 32), BATCH * 64, (32, 64))
    x = net.convolution(net.run("Transpose", x, perm=[0, 2, 1]), (64, 64), (64,), groups=64)
    x = net.run("CumSum", net.run("Mul", x, net.weight(64, 1)), net.constant(2))
    return net.linear(net.run("Transpose", x, perm=[0, 2, 1]), BATCH * 64, (64, 32))


@network()
def detection(net):
    x = net.input(BATCH, 3, 64, 64)
    features = [net.convolution(x, (3, 32), (32, 32), strides=[2, 2])]
    features.append(net.convolution(features[0], (32, 32), (16, 16), strides=[2, 2]))
    head = net.weight(36, 32, 3, 3)
    boxes = []
    for feature, side in zip(features, (32, 16), strict=True):
        net.flop += 2 * BATCH * side * side * 9 * 32 * 36
        boxes.append(net.reshape(net.run("Conv", feature, head, pads=[1] * 4), BATCH, -1, 4))
    regions, owners = net.input(50, 4), net.indices(50)
    parts = net.run("RoiAlign", features[0], regions, owners, output_height=7, output_width=7)
    return net.run("Concat", *boxes, axis=1), net.linear(net.run("Flatten", parts), 50, (32 * 49, 21))


@network(opset=22)
def deformable_convolution(net):
    x = net.input(BATCH, 16, 32, 32)
    offsets = net.convolution(x, (16, 18), (32, 32))
    net.flop += 2 * BATCH * 32 * 32 * 9 * 16 * 32
    return net.run("DeformConv", x, net.weight(32, 16, 3, 3), offsets, kernel_shape=[3, 3], pads=[1] * 4)


@network(opset=20)
def fourier_operator(net):
    modes = net.run("DFT", net.input(BATCH, 8, 64, 1), "", net.constant(2), onesided=1)
    modes = net.run("Slice", modes, net.constant([0]), net.constant([16]), net.constant([2]))
    net.flop += 2 * BATCH * 8 * 8 * 16 * 2
    return net.run("Einsum", modes, net.weight(8, 8, 16, 2), equation="bixc,ioxc->boxc")


@network()
def weights_in_8_bits_with_scales(net):
    x, scale = net.input(BATCH, 3, 32, 32), net.constant(0.1, np.float32)
    net.flop += 2 * BATCH * 32 * 32 * 27 * 16
    weight = net.run("DequantizeLinear", net.weight(16, 3, 3, 3, dtype=np.int8), scale)
    return net.run("Conv", x, weight, pads=[1] * 4)


@network()
def operators_in_8_bits(net):
    x, scale = net.input(BATCH, 16, 32, 32, dtype=TensorProto.UINT8), net.constant(0.1, np.float32)
    zero = net.constant(0, np.uint8)
    net.flop += 2 * BATCH * 32 * 32 * 9 * 16 * 32 + 2 * BATCH * 32 * 1024 * 10
    weight = [net.weight(32, 16, 3, 3, dtype=np.int8), scale, net.constant(0, np.int8)]
    x = net.run("QLinearConv", x, scale, zero, *weight, scale, zero, pads=[1] * 4)
    flat = net.run("Flatten", x)
    product = net.run("MatMulInteger", flat, net.weight(32 * 1024, 10, dtype=np.int8), zero)
    return net.run("Cast", product, to=TensorProto.FLOAT)


@network()
def attention_of_onnx_runtime(net):
    x = net.input(BATCH, 32, 64)
    net.flop += 2 * BATCH * 32 * 64 * 192 + 4 * BATCH * 32 * 32 * 64
    mixed = net.run("Attention", x, net.weight(64, 192), net.weight(192), domain=RUNTIME, num_heads=4)
    norm = net.weight(64), net.weight(64)
    return net.linear(
        net.run("SkipLayerNormalization", x, mixed, *norm, domain=RUNTIME), BATCH * 32, (64, 64)
    )


@network()
def language_model_of_onnx_runtime_in_4_bits(net):
    x, (past, lengths) = net.input(BATCH, 128, 64), (net.input(BATCH, 4, 0, 8), net.constant([127] * BATCH))

    def packed(x, columns):
        net.parameters += 64 * columns
        net.flop += 2 * BATCH * 128 * 64 * columns
        weight = net.weight(columns, 2, 16, dtype=np.uint8, counts=False)
        scales = net.weight(columns * 2, counts=False)
        sizes = {"K": 64, "N": columns, "bits": 4, "block_size": 32}
        return net.run("MatMulNBits", x, weight, scales, domain=RUNTIME, **sizes)

    heads = {"num_heads": 8, "kv_num_heads": 4}
    net.flop += 4 * BATCH * 128 * 128 * 64
    total = net.constant(128)
    mixed = net.run(
        *("GroupQueryAttention", packed(x, 128), "", "", past, past, lengths, total),
        domain=RUNTIME,
        shape=(BATCH, 128, 64),
        **heads,
    )
    return packed(mixed, 64)


@network()
def functions(net):
    body = [helper.make_node("MatMul", ["X", "W"], ["M"]), helper.make_node("Relu", ["M"], ["Y"])]
    opsets = [helper.make_opsetid("", 18)]
    net.functions.append(helper.make_function("local", "Layer", ["X", "W"], ["Y"], body, opsets))
    net.flop += 2 * BATCH * 64 * 64
    return net.run("Layer", net.input(BATCH, 64), net.weight(64, 64), domain="local")


@network()
def weights_that_are_constants(net):
    zeros = numpy_helper.from_array(np.zeros((64, 32), np.float32))
    net.flop, net.parameters = 2 * BATCH * 64 * 32, 64 * 32
    return net.run("MatMul", net.input(BATCH, 64), net.run("Constant", value=zeros))


@network()
def sparse_weight(net):
    values = numpy_helper.from_array(np.ones(10, np.float32), "sparse")
    places = numpy_helper.from_array(np.arange(10), "places")
    net.sparse.append(helper.make_sparse_tensor(values, places, [64, 32]))
    net.flop, net.parameters = 2 * BATCH * 64 * 32, 64 * 32
    return net.run("MatMul", net.input(BATCH, 64), "sparse")


@network()
def transposed_data(net):
    net.flop = 2 * BATCH * 64 * 32
    return net.run("Gemm", net.input(64, BATCH), net.weight(64, 32), net.weight(32), transA=1)


@network()
def super_resolution(net):
    x = net.run("Pad", net.input(BATCH, 16, 32, 32), net.constant([0, 0, 1, 1] * 2), mode="reflect")
    x = net.convolution(x, (16, 48), (32, 32), groups=4, pads=[0] * 4)
    x = net.run("InstanceNormalization", x, net.weight(48), net.weight(48))
    return net.convolution(net.run("DepthToSpace", x, blocksize=2), (12, 3), (64, 64))
