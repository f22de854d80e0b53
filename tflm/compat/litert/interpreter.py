"""LiteRT's `Interpreter`, run by this package: changing the import is enough.

    from tflm.compat.litert.interpreter import Interpreter

Method names, arguments, results and the kinds of errors are those of `ai_edge_litert.interpreter`; outputs are TFLM's.
The arena gets the size that the model needs, and all operators of the package are registered.
"""

from __future__ import annotations

import enum
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tflm import delegates
from tflm.compat.litert.subgraph import RunnableSubgraph
from tflm.errors import ModelError, TflmError
from tflm.kernels import Registration
from tflm.runtime.growing_arena import ready_interpreter
from tflm.runtime.micro_interpreter import MicroInterpreter
from tflm.runtime.micro_op_resolver import AllOpsResolver, MicroMutableOpResolver
from tflm.schema.model import Model

Details = dict[str, Any]

Registerer = str | Registration | Callable[[MicroMutableOpResolver], None]
"""Adds an operator: a registration, or a function that takes the resolver. Names of C++ functions raise an error."""


@enum.unique
class OpResolverType(enum.Enum):
    """Which kernels run a model. Their outputs are the same here: TFLM's.

    Attributes:
        AUTO, BUILTIN: with the default delegates.
        BUILTIN_REF, BUILTIN_WITHOUT_DEFAULT_DELEGATES: without the default delegates.
    """

    AUTO = 0
    BUILTIN = 1
    BUILTIN_REF = 2
    BUILTIN_WITHOUT_DEFAULT_DELEGATES = 3


class Delegate:
    """A delegate of this package, loaded by name; see `load_delegate`.

    Args:
        library: `compiled`, `flex`, or one of your own as `package.module:Class`.
        options: keyword arguments of its constructor.

    Raises:
        ValueError: the name is unknown, or the delegate can't be made with these options.
    """

    def __init__(self, library: str, options: Mapping[str, Any] | None = None):
        self._library = library
        made = delegates.by_name(library)
        try:
            self._delegate = type(made)(**options) if options else made
        except (TypeError, TflmError) as error:
            raise ValueError(str(error)) from error


def load_delegate(library: str, options: Mapping[str, Any] | None = None) -> Delegate:
    """A delegate for `Interpreter(experimental_delegates=[...])`; see `Delegate` for the arguments.

    Raises:
        ValueError: it can't be loaded, such as the native libraries that LiteRT loads.
    """
    try:
        return Delegate(library, options)
    except ValueError as error:
        raise ValueError(f"Failed to load delegate from {library}\n{error}") from error


class SignatureRunner:
    """Runs one signature of a model: takes its inputs and returns its outputs by name.

    Made by `Interpreter.get_signature_runner`.

    Raises:
        ValueError: the model has no such signature.
    """

    def __init__(self, interpreter: Interpreter | None = None, signature_key: str | None = None):
        if not interpreter:
            raise ValueError("None interpreter provided.")
        if not signature_key:
            raise ValueError("None signature_key provided.")
        self._interpreter = interpreter
        self._signature_key = signature_key
        signatures = interpreter._get_full_signature_list()
        if signature_key not in signatures:
            raise ValueError(f'Invalid signature_key provided: "{signature_key}".')
        self._inputs = signatures[signature_key]["inputs"]
        self._outputs = signatures[signature_key]["outputs"]
        self._subgraph_index = interpreter._subgraph_of_signature(signature_key)

    def __call__(self, **kwargs: Any) -> dict[str, npt.NDArray[Any]]:
        """Run it on inputs by name, each resized to the shape of its value; returns copies of the outputs by name.

        Raises:
            ValueError: inputs are missing, unknown, or of the wrong type.
            RuntimeError: the model can't be run with inputs of these shapes.
        """
        if len(kwargs) != len(self._inputs):
            raise ValueError(
                "Invalid number of inputs provided for running a SignatureDef, expected "
                f"{len(self._inputs)} vs provided {len(kwargs)}"
            )
        subgraph = self._interpreter._subgraph(self._subgraph_index)
        for name, value in kwargs.items():
            if name not in self._inputs:
                raise ValueError(f"Invalid Input name ({name}) for SignatureDef")
            subgraph.resize(self._inputs[name], np.array(value.shape, np.int32))
        subgraph.allocate()
        for name, value in kwargs.items():
            subgraph.set_tensor(self._inputs[name], value)
        subgraph.invoke()
        return {name: _copied(subgraph.data(tensor)) for name, tensor in self._outputs.items()}

    def get_input_details(self) -> dict[str, Details]:
        """The details of `Interpreter.get_input_details`, by the names of the signature."""
        return self._details(self._inputs)

    def get_output_details(self) -> dict[str, Details]:
        """The details of `Interpreter.get_output_details`, by the names of the signature."""
        return self._details(self._outputs)

    def _details(self, tensors: Mapping[str, int]) -> dict[str, Details]:
        return {
            name: self._interpreter._get_tensor_details(tensor, self._subgraph_index)
            for name, tensor in tensors.items()
        }


class Interpreter:
    """A model, to be allocated and run.

    Args:
        model_path: path of a `.tflite` file.
        model_content: its bytes, instead of a path.
        experimental_delegates: results of `load_delegate`, or delegates of this package.
        num_threads: accepted and ignored; one thread is used.
        experimental_op_resolver_type: whether the default delegates are used, see `OpResolverType`.
        experimental_preserve_all_tensors: keep every tensor, so that `get_tensor` can look at any.
        experimental_disable_delegate_clustering, experimental_default_delegate_latest_features,
        experimental_compress_quantization_zero_points, experimental_disable_delegate_node_fusion,
        experimental_force_delegate_node_profiling: accepted and ignored.

    Raises:
        ValueError: an argument can't be used, or the model is not valid.
    """

    _custom_op_registerers: Sequence[Registerer] = ()

    def __init__(
        self,
        model_path: str | os.PathLike[str] | None = None,
        model_content: bytes | None = None,
        experimental_delegates: Sequence[Delegate | delegates.Delegate] | None = None,
        num_threads: int | None = None,
        experimental_op_resolver_type: OpResolverType = OpResolverType.AUTO,
        experimental_preserve_all_tensors: bool = False,
        experimental_disable_delegate_clustering: bool = False,
        experimental_default_delegate_latest_features: bool = False,
        experimental_compress_quantization_zero_points: bool = False,
        experimental_disable_delegate_node_fusion: bool = False,
        experimental_force_delegate_node_profiling: bool = False,
    ):
        if not isinstance(experimental_op_resolver_type, OpResolverType):
            raise ValueError(f"Unrecognized passed in op resolver type: {experimental_op_resolver_type}")
        if num_threads is not None:
            if not isinstance(num_threads, int):
                raise ValueError("type of num_threads should be int")
            if num_threads < 1:
                raise ValueError("num_threads should >= 1")
        has_defaults = experimental_op_resolver_type in (OpResolverType.AUTO, OpResolverType.BUILTIN)
        if experimental_preserve_all_tensors and has_defaults:
            warnings.warn("every tensor gets separate memory, which is for debugging and takes more", stacklevel=2)
        self.experimental_compress_quantization_zero_points = experimental_compress_quantization_zero_points
        self._delegates = list(experimental_delegates or ())
        given = [each._delegate if isinstance(each, Delegate) else each for each in self._delegates]
        self._model = _model(model_path, model_content)
        resolver = _resolver(self._custom_op_registerers)

        def allocated(model: Model) -> MicroInterpreter:
            defaults = delegates.default_delegates(model) if has_defaults else []
            return ready_interpreter(
                model,
                resolver,
                preserve_all_tensors=experimental_preserve_all_tensors,
                delegates=[*given, *defaults],
            )

        self._subgraphs = [RunnableSubgraph(self._model, i, allocated) for i in range(self.num_subgraphs())]

    def allocate_tensors(self) -> None:
        """Place the model in an arena of the size that it needs.

        Raises:
            RuntimeError: the model can't be placed, or an array of `tensor` still exists.
        """
        self._ensure_safe()
        self._subgraphs[0].allocate()

    def invoke(self) -> None:
        """Run the model on the values of its inputs.

        Raises:
            RuntimeError: it is not allocated, an operator fails, or an array of `tensor` still exists.
        """
        self._ensure_safe()
        self._subgraphs[0].invoke()

    def reset_all_variables(self) -> None:
        """Reset variables to their values before the first invoke."""
        for subgraph in self._subgraphs:
            subgraph.reset_variables()

    def resize_tensor_input(self, input_index: int, tensor_size: Any, strict: bool = False) -> None:
        """Change the shape of an input; call `allocate_tensors` afterwards.

        Args:
            input_index: the `index` of the input's details.
            tensor_size: the shape.
            strict: only dimensions that are -1 in the `shape_signature` may change.

        Raises:
            ValueError: the size is not a shape.
            RuntimeError: the tensor does not support it, or an array of `tensor` still exists.
        """
        self._ensure_safe()
        self._subgraphs[0].resize(input_index, np.array(tensor_size, np.int32), strict)

    def get_input_details(self) -> list[Details]:
        """The name, index, shape, shape_signature, dtype, quantization and sparsity of each input."""
        return [self._get_tensor_details(index, 0) for index in self._model.subgraphs[0].inputs or ()]

    def get_output_details(self) -> list[Details]:
        """The same details of each output."""
        return [self._get_tensor_details(index, 0) for index in self._model.subgraphs[0].outputs or ()]

    def get_tensor_details(self, subgraph_index: int = 0) -> list[Details]:
        """The same details of each tensor of a subgraph.

        Raises:
            ValueError: there is no such subgraph.
        """
        count = self.num_subgraphs()
        if not 0 <= subgraph_index < count:
            raise ValueError(
                f"subgraph_index is out of range: {subgraph_index} for the model, which has {count} subgraphs."
            )
        subgraph = self._subgraphs[subgraph_index]
        return [subgraph.tensor_details(index) for index in range(len(subgraph.tensors))]

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> npt.NDArray[Any]:
        """A copy of a tensor.

        Tensors other than inputs, outputs and constants are overwritten while the model runs, unless the interpreter
        preserves them.

        Raises:
            ValueError: there is no such tensor, or it has no data yet.
        """
        return _copied(self._subgraph(subgraph_index).data(tensor_index))

    def set_tensor(self, tensor_index: int, value: Any) -> None:
        """Copy values to an input.

        Raises:
            ValueError: their type or shape is not that of the tensor, or the model is not allocated.
        """
        self._subgraphs[0].set_tensor(tensor_index, value)

    def tensor(self, tensor_index: int) -> Callable[[], npt.NDArray[Any]]:
        """A function that returns a view of a tensor's elements, to read and to write.

        While such an array exists, nothing can be allocated, resized or run.
        """
        return lambda: self._subgraphs[0].view(tensor_index)

    def num_subgraphs(self) -> int:
        """Number of subgraphs."""
        return len(self._model.subgraphs)

    def get_signature_list(self) -> dict[str, dict[str, list[str]]]:
        """The names of inputs and outputs of each signature."""
        return {
            key: {side: list(tensors) for side, tensors in sides.items()}
            for key, sides in self._get_full_signature_list().items()
        }

    def get_signature_runner(self, signature_key: str | None = None) -> SignatureRunner:
        """The runner of a signature; the key is optional if there is only one.

        Raises:
            ValueError: unknown signature, or no key and not exactly one signature.
        """
        if signature_key is None:
            keys = list(self._get_full_signature_list())
            if len(keys) != 1:
                raise ValueError(
                    f"SignatureDef signature_key is None and model has {len(keys)} Signatures. None is only allowed "
                    "when the model has 1 SignatureDef"
                )
            signature_key = keys[0]
        return SignatureRunner(self, signature_key)

    def _get_full_signature_list(self) -> dict[str, dict[str, dict[str, int]]]:
        """For each signature the tensors that it names, as `inputs` and `outputs`, in the order of the names."""
        return {
            signature.signature_key or "": {
                side: {entry.name or "": entry.tensor_index for entry in sorted(maps or (), key=lambda m: m.name or "")}
                for side, maps in (("inputs", signature.inputs), ("outputs", signature.outputs))
            }
            for signature in self._model.root.signature_defs or ()
        }

    def _subgraph_of_signature(self, key: str) -> int:
        signatures = self._model.root.signature_defs or ()
        return next(each.subgraph_index for each in signatures if each.signature_key == key)

    def _subgraph(self, index: int) -> RunnableSubgraph:
        if not 0 <= index < self.num_subgraphs():
            raise ValueError(f"Invalid subgraph index {index} exceeds max subgraph index {self.num_subgraphs()}")
        return self._subgraphs[index]

    def _get_tensor_details(self, tensor_index: int, subgraph_index: int) -> Details:
        return self._subgraph(int(subgraph_index)).tensor_details(int(tensor_index))

    def _get_op_details(self, op_index: int) -> Details:
        """The index, name, tensors and their types of an operator."""
        operators = self._model.subgraphs[0].operators or []
        if not 0 <= op_index < len(operators):
            raise ValueError("Invalid node index")
        operator = operators[op_index]
        inputs, outputs = (np.array(side or (), np.int32) for side in (operator.inputs, operator.outputs))

        def types(tensors: Iterable[int]) -> list[Any]:
            return [self._get_tensor_details(tensor, 0)["dtype"] for tensor in tensors if tensor != -1]

        return {
            "index": int(op_index),
            "op_name": self._model.operator_name(operator),
            "inputs": inputs,
            "outputs": outputs,
            "operand_types": types(inputs),
            "result_types": types(outputs),
        }

    def _get_ops_details(self) -> list[Details]:
        """The details of each operator of the first subgraph."""
        return [self._get_op_details(index) for index in range(len(self._model.subgraphs[0].operators or ()))]

    def _safe_to_run(self) -> bool:
        """Whether no array of `tensor` exists; each of them refers to the first subgraph."""
        return sys.getrefcount(self._subgraphs[0]) == 2

    def _ensure_safe(self) -> None:
        if not self._safe_to_run():
            raise RuntimeError(
                "There is at least 1 reference to internal data in the interpreter in the form of a numpy array or "
                "slice. Be sure to only hold the function returned from tensor() if you are using raw data access."
            )


class InterpreterWithCustomOps(Interpreter):
    """An interpreter with operators of your own.

    Args:
        custom_op_registerers: `tflm.Registration` objects, or functions that add operators to a given resolver.
        kwargs: as for `Interpreter`.

    Raises:
        ValueError: as for `Interpreter`, or a registerer is the name of a C++ function.
    """

    def __init__(self, custom_op_registerers: Sequence[Registerer] | None = None, **kwargs: Any):
        self._custom_op_registerers = custom_op_registerers or []
        super().__init__(**kwargs)


def _model(path: str | os.PathLike[str] | None, content: bytes | None) -> Model:
    if path and content:
        raise ValueError("Can't both provide `model_path` and `model_content`")
    if not path and not content:
        raise ValueError("`model_path` or `model_content` must be specified.")
    if content and not isinstance(content, bytes):
        raise TypeError(f"model_content is bytes, not {type(content).__name__}")
    try:
        return Model(content) if content else Model.from_file(cast(str, path))
    except OSError as error:
        raise ValueError(f"Could not open '{path}'. {error.strerror}") from error
    except ModelError as error:
        raise ValueError(f"The model is not a valid Flatbuffer buffer: {error}") from error


def _resolver(registerers: Iterable[Registerer]) -> AllOpsResolver:
    resolver = AllOpsResolver()
    for registerer in registerers:
        if isinstance(registerer, str):
            reason = "C++ functions are not supported; pass the operator's tflm.Registration"
            raise ValueError(f"Looking up symbol '{registerer}' failed with error '{reason}'.")
        if isinstance(registerer, Registration):
            resolver.add_custom(registerer)
        else:
            registerer(resolver)
    return resolver


def _copied(data: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.array(data, data.dtype)
