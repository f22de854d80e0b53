// What generated code uses of the schema.
#ifndef STAND_IN_SCHEMA_GENERATED_H_
#define STAND_IN_SCHEMA_GENERATED_H_

namespace tflite {

enum BuiltinOperator { BuiltinOperator_FULLY_CONNECTED = 9 };

struct Model;
const Model* GetModel(const void* data);

}  // namespace tflite

#endif  // STAND_IN_SCHEMA_GENERATED_H_
