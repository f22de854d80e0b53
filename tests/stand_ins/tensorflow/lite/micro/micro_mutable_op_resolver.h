// Declares what generated code uses of the resolver: a method for each operator that TFLM has.
#ifndef STAND_IN_MICRO_MUTABLE_OP_RESOLVER_H_
#define STAND_IN_MICRO_MUTABLE_OP_RESOLVER_H_

#include "tensorflow/lite/micro/namespaces.h"
#include "tensorflow/lite/micro/status.h"
#include "tensorflow/lite/schema/schema_generated.h"

BEGIN_NAMES

struct TFLMRegistration {
  TfLiteStatus (*invoke)(TfLiteContext* context, TfLiteNode* node);
};

class MicroOpResolver {};

template <unsigned int capacity>
class MicroMutableOpResolver : public MicroOpResolver {
 public:
  const TFLMRegistration* FindOp(BuiltinOperator op) const;
  const TFLMRegistration* FindOp(const char* op) const;
  TfLiteStatus AddAbs();
  TfLiteStatus AddAdd();
  TfLiteStatus AddAddN();
  TfLiteStatus AddArgMax();
  TfLiteStatus AddArgMin();
  TfLiteStatus AddAssignVariable();
  TfLiteStatus AddAveragePool2D();
  TfLiteStatus AddBatchMatMul();
  TfLiteStatus AddBatchToSpaceNd();
  TfLiteStatus AddBroadcastArgs();
  TfLiteStatus AddBroadcastTo();
  TfLiteStatus AddCallOnce();
  TfLiteStatus AddCast();
  TfLiteStatus AddCeil();
  TfLiteStatus AddCircularBuffer();
  TfLiteStatus AddConcatenation();
  TfLiteStatus AddConv2D();
  TfLiteStatus AddCos();
  TfLiteStatus AddCumSum();
  TfLiteStatus AddDecode();
  TfLiteStatus AddDelay();
  TfLiteStatus AddDepthToSpace();
  TfLiteStatus AddDepthwiseConv2D();
  TfLiteStatus AddDequantize();
  TfLiteStatus AddDetectionPostprocess();
  TfLiteStatus AddDiv();
  TfLiteStatus AddDynamicUpdateSlice();
  TfLiteStatus AddElu();
  TfLiteStatus AddEmbeddingLookup();
  TfLiteStatus AddEnergy();
  TfLiteStatus AddEqual();
  TfLiteStatus AddEthosU();
  TfLiteStatus AddExp();
  TfLiteStatus AddExpandDims();
  TfLiteStatus AddFftAutoScale();
  TfLiteStatus AddFill();
  TfLiteStatus AddFilterBank();
  TfLiteStatus AddFilterBankLog();
  TfLiteStatus AddFilterBankSpectralSubtraction();
  TfLiteStatus AddFilterBankSquareRoot();
  TfLiteStatus AddFloor();
  TfLiteStatus AddFloorDiv();
  TfLiteStatus AddFloorMod();
  TfLiteStatus AddFramer();
  TfLiteStatus AddFullyConnected();
  TfLiteStatus AddGather();
  TfLiteStatus AddGatherNd();
  TfLiteStatus AddGreater();
  TfLiteStatus AddGreaterEqual();
  TfLiteStatus AddHardSwish();
  TfLiteStatus AddIf();
  TfLiteStatus AddIrfft();
  TfLiteStatus AddL2Normalization();
  TfLiteStatus AddL2Pool2D();
  TfLiteStatus AddLeakyRelu();
  TfLiteStatus AddLess();
  TfLiteStatus AddLessEqual();
  TfLiteStatus AddLog();
  TfLiteStatus AddLogSoftmax();
  TfLiteStatus AddLogicalAnd();
  TfLiteStatus AddLogicalNot();
  TfLiteStatus AddLogicalOr();
  TfLiteStatus AddLogistic();
  TfLiteStatus AddMaxPool2D();
  TfLiteStatus AddMaximum();
  TfLiteStatus AddMean();
  TfLiteStatus AddMinimum();
  TfLiteStatus AddMirrorPad();
  TfLiteStatus AddMul();
  TfLiteStatus AddNeg();
  TfLiteStatus AddNotEqual();
  TfLiteStatus AddOverlapAdd();
  TfLiteStatus AddPCAN();
  TfLiteStatus AddPack();
  TfLiteStatus AddPad();
  TfLiteStatus AddPadV2();
  TfLiteStatus AddPrelu();
  TfLiteStatus AddQuantize();
  TfLiteStatus AddReadVariable();
  TfLiteStatus AddReduceAll();
  TfLiteStatus AddReduceMax();
  TfLiteStatus AddReduceMin();
  TfLiteStatus AddRelu();
  TfLiteStatus AddRelu6();
  TfLiteStatus AddReshape();
  TfLiteStatus AddResizeBilinear();
  TfLiteStatus AddResizeNearestNeighbor();
  TfLiteStatus AddReverseV2();
  TfLiteStatus AddRfft();
  TfLiteStatus AddRound();
  TfLiteStatus AddRsqrt();
  TfLiteStatus AddSelectV2();
  TfLiteStatus AddShape();
  TfLiteStatus AddSin();
  TfLiteStatus AddSlice();
  TfLiteStatus AddSoftmax();
  TfLiteStatus AddSpaceToBatchNd();
  TfLiteStatus AddSpaceToDepth();
  TfLiteStatus AddSplit();
  TfLiteStatus AddSplitV();
  TfLiteStatus AddSqrt();
  TfLiteStatus AddSquare();
  TfLiteStatus AddSquaredDifference();
  TfLiteStatus AddSqueeze();
  TfLiteStatus AddStacker();
  TfLiteStatus AddStridedSlice();
  TfLiteStatus AddSub();
  TfLiteStatus AddSum();
  TfLiteStatus AddSvdf();
  TfLiteStatus AddTanh();
  TfLiteStatus AddTranspose();
  TfLiteStatus AddTransposeConv();
  TfLiteStatus AddUnidirectionalSequenceLSTM();
  TfLiteStatus AddUnpack();
  TfLiteStatus AddVarHandle();
  TfLiteStatus AddWhile();
  TfLiteStatus AddWindow();
  TfLiteStatus AddZerosLike();
};

END_NAMES

#endif  // STAND_IN_MICRO_MUTABLE_OP_RESOLVER_H_
