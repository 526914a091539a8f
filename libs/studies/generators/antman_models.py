"""What the models of the AntMan paper ask of a V100 with 32 GB (OSDI'20, table 3 and what is said of them elsewhere).

Numbers that the paper prints are used as they are; the comment of each model says which these are. The others are
assumptions, made once and for all before anything was measured with them.
"""

from __future__ import annotations

from libs.sim.sharing.demands import GIB, Curve, Demand, JobModel, JobModels, Phase, steady

RESNET_CURVE: Curve = ((0.0, 0.1), (0.9, 0.4), (1.0, 1.0))
"""Figure 10: 10 % less memory, more than 60 % slower."""
VGG_CURVE: Curve = ((0.0, 0.3), (0.5, 0.97), (1.0, 1.0))
"""Figure 10: most of its speed with half of its memory."""
SR_CURVE: Curve = ((0.0, 0.7), (0.1, 0.75), (1.0, 1.0))
"""Figure 10: about 25 % slower with a tenth of its memory."""
ESPNET_WEIGHT = 0.08
"""Against ResNet-50: chosen so that its mini-batches take five times as long when the two are packed, as the whole run
of figure 12 does (105.2 minutes in the place of 20.1). So that number is an input here, and no result."""

RESNET = Demand(0.119, 0.94, round(17.6 * GIB), sensitivity=RESNET_CURVE)
"""Figure 11a: 17.6 GB, mini-batches of 119 ms; use of the GPU: Gandiva's table 1."""
VGG16 = Demand(0.15, 0.9, 17 * GIB, sensitivity=VGG_CURVE)
"""Figure 11b: 17 GB."""
SUPER_RESOLUTION = Demand(0.1, 0.141, 4 * GIB, sensitivity=SR_CURVE)
"""Use of the GPU: Gandiva's table 1."""
BERT = Demand(0.35, 0.95, 20 * GIB)
ESPNET_TRAINS = Demand(0.4, 0.35, round(3.6 * GIB), weight=ESPNET_WEIGHT)
"""Section 2.2: 3.6 GB, and up to 70 % of the GPU's processors; figure 12: between 5 % and 50 %."""
ESPNET_DECODES = Demand(0.4, 0.0, 19 * GIB)
"""Section 2.2: up to 19 GB; section 5.1: it consumes no GPU cycles."""
ON_CPU = Demand(1.0, 0.0, 0)
GRAPHSAGE = Demand(0.15, 0.3, 3 * GIB)
GCN = Demand(0.2, 0.4, round(3.5 * GIB))
"""Table 1: 3.5 GB."""
DIN = Demand(0.05, 0.25, 2 * GIB)
WIDE_AND_DEEP = Demand(0.05, 0.2, 2 * GIB)
RESNET_360_CURVE: Curve = ((0.0, 0.1), (0.95, 0.17), (1.0, 1.0))
"""Table 2: with 28.5 of 30 GB (UMem) it takes 541.6 minutes, in the text 514.6, in the place of 91.1. So that number is
an input here, and no result."""
RESNET_360 = Demand(0.5, 0.94, 30 * GIB, sensitivity=RESNET_360_CURVE)
"""Table 1: 30 GB with a batch size of 360."""
GCN_1400_CURVE: Curve = ((0.0, 0.25), (0.57, 0.95), (1.0, 1.0))
"""Table 2: with 2.0 of 3.5 GB (AntMan) it does 17.0 minutes of its work in 17.9, and so it has 95 % of its speed."""
GCN_1400 = Demand(0.2, 0.044, round(3.5 * GIB), sensitivity=GCN_1400_CURVE)
"""Table 1: 3.5 GB with a batch size of 1400. Its use of the GPU follows from table 2: beside it ResNet-50 loses 0.7
minutes (91.8 and 91.1), which it computes for while ResNet-50 wants the GPU, 94 % of the time; that is 0.74 of the
17.0 minutes of its work. With the 40 % that is assumed of GCN elsewhere the two would want more than there is."""

ESPNET = JobModel(
    cycle=(Phase(1400.0, ESPNET_TRAINS), Phase(200.0, ESPNET_DECODES), Phase(100.0, ON_CPU)),
)
"""Figure 4: after 1,400 s of training 200 s of decoding and 100 s of synthesis on the CPU."""
ESPNET_FIGURE_12 = JobModel(
    cycle=(Phase(140.0, ESPNET_TRAINS), Phase(250.0, Demand(0.4, 0.0, ESPNET_TRAINS.memory_bytes)))
)
"""Figure 12b: it trains for 140 s and decodes until 390 s; taken to go on so. Both jobs fit on the GPU together."""
DEEPFM = JobModel(first=(Phase(275.0, ON_CPU),), cycle=(Phase(3600.0, Demand(0.05, 0.5, 4 * GIB)),))
"""Figure 3: the GPU is used from 275 s on."""

FIELDS = (
    (("ResNet-50", steady(RESNET)), ("VGG16", steady(VGG16)), ("SuperResolution", steady(SUPER_RESOLUTION))),
    (("Bert", steady(BERT)),),
    (("ESPnet", ESPNET),),
    (("GraphSAGE", steady(GRAPHSAGE)), ("GCN", steady(GCN))),
    (("DIN", steady(DIN)), ("Wide & Deep", steady(WIDE_AND_DEEP))),
)
"""Table 3: each field has a fifth of the jobs, evenly divided among its models."""
MODELS = JobModels(
    {
        **{name: model for field in FIELDS for name, model in field},
        "DeepFM": DEEPFM,
        "ESPnet (figure 12)": ESPNET_FIGURE_12,
        "ResNet-50 (BS 360)": steady(RESNET_360),
        "GCN (BS 1400)": steady(GCN_1400),
    }
)
