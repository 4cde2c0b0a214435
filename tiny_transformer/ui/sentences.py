"""What the library may say about a request, and the same in Chinese.

The library speaks English and knows nothing of a page. Here each of its sentences stands as a template,
`{name}` for whatever it fills in; the first that fits a sentence gives its Chinese form.
"""

OF_REQUESTS: tuple[tuple[str, str], ...] = (
    # What was left out of a dialogue or a text
    (
        "The oldest message was left out: the model's context holds {size} tokens.",
        "最早的 1 条消息未被读取：模型的上下文为 {size} 个词元。",
    ),
    (
        "The {n} oldest messages were left out: the model's context holds {size} tokens.",
        "最早的 {n} 条消息未被读取：模型的上下文为 {size} 个词元。",
    ),
    (
        "The system message has {n} tokens, too many to keep; it was left out.",
        "系统消息有 {n} 个词元，太长而未被读取。",
    ),
    (
        "The {what} has {n} tokens; the model read only the last {kept}.",
        "文本有 {n} 个词元，模型只读了最后 {kept} 个。",
    ),
    ("The {what} has {n} tokens; the model read only the first {kept}.", "文本有 {n} 个词元，模型只读了前 {kept} 个。"),
    # Texts, dialogues and options
    ("The text is empty; write something.", "文本是空的，请写点什么。"),
    ("The last message is empty; write something.", "最后一条消息是空的，请写点什么。"),
    (
        "The last message is from the {role}; it must be the user's for the model to reply.",
        "最后一条消息来自 {role}；必须是用户的消息，模型才能回答。",
    ),
    (
        'A dialogue is a list of {{"role": ..., "content": ...}}; give at least one message.',
        '对话是 {{"role": ..., "content": ...}} 的列表；请至少给出一条消息。',
    ),
    (
        'A message must be {{"role": ..., "content": ...}}; correct the history.',
        '一条消息必须是 {{"role": ..., "content": ...}}；请更正历史。',
    ),
    ("The role {role} is unknown; choose one of {roles}.", "未知的角色 {role}；请从 {roles} 中选择。"),
    (
        "The content of a message must be text, not {kind}; correct the history.",
        "消息的内容必须是文本，而不是 {kind}；请更正历史。",
    ),
    (
        "A context of {size} tokens has no room for a message beside the reply; shorten it.",
        "{size} 个词元的上下文容不下消息和回答；请缩短回答。",
    ),
    (
        "The start of the answer has {n} tokens and fills the context; shorten it.",
        "回答的开头有 {n} 个词元，占满了上下文；请缩短。",
    ),
    (
        "A model for {task} takes a text, not {kind}; pass a string.",
        "{task} 模型需要文本，而不是 {kind}；请给出字符串。",
    ),
    ("This model is for {task}, not for chat; use generate.", "这个模型用于 {task}，不能聊天；请用 generate。"),
    ("Expected text, not {kind}; pass a string.", "需要文本，而不是 {kind}；请给出字符串。"),
    (
        "The text holds a lone surrogate ({code}) at character {place}; remove it.",
        "文本第 {place} 个字符是孤立的代理项（{code}）；请删除。",
    ),
    (
        "Expected a list of token ids, not {kind}; pass whole numbers.",
        "需要词元编号的列表，而不是 {kind}；请给出整数。",
    ),
    (
        "A token id must be a whole number, not {value}; correct the ids.",
        "词元编号必须是整数，而不是 {value}；请更正。",
    ),
    (
        "The token id {id} is outside the vocabulary of {size}; check the tokenizer.",
        "词元编号 {id} 不在大小为 {size} 的词表中；请检查分词器。",
    ),
    (
        "token id {id} is outside the vocabulary of {size}; check the ids.",
        "词元编号 {id} 不在大小为 {size} 的词表中；请检查。",
    ),
    (
        "The {what} holds the id {id}, outside the vocabulary of {size}; check the tokenizer.",
        "输入含有编号 {id}，不在大小为 {size} 的词表中；请检查分词器。",
    ),
    (
        "The {what} has {n} tokens, more than the model's max_length {size}; shorten it.",
        "输入有 {n} 个词元，超过模型的上限 {size}；请缩短。",
    ),
    # Models and backends
    (
        "The model was pulled in 8 bits alone, which have no attention maps; load it on onnx.",
        "这个模型只取了 8 位权重，没有注意力图；请用 onnx 加载。",
    ),
    ("There is no model {name}; choose one of {names}.", "没有模型 {name}；请从 {names} 中选择。"),
    ("This page has no model for {task}; start it with one.", "本页没有用于 {task} 的模型；请在启动时给出一个。"),
    (
        "The backend must be a name, not {value}; choose auto or one that is available.",
        "后端必须是名称，而不是 {value}；请选 auto 或一个可用的后端。",
    ),
    ("There is no backend {name}; choose {names}.", "没有后端 {name}；请选择 {names}。"),
    ("The backend {name} cannot run {folder}: {reason}.", "后端 {name} 无法运行 {folder}：{reason}。"),
    (
        "No backend can run {folder}. onnx: {onnx}; eager: {eager}.",
        "没有后端能运行 {folder}。onnx：{onnx}；eager：{eager}。",
    ),
    ("Running on PyTorch instead of ONNX Runtime: {reason}.", "改用 PyTorch 而非 ONNX Runtime：{reason}。"),
    ("the folder has no {files}, make it with: {command}", "文件夹中没有 {files}，用此命令生成：{command}"),
    ("the package {name} is missing, get it with: {command}", "缺少 {name} 包，用此命令安装：{command}"),
    ("it runs on the CPU, not on {device}; leave the device out", "它只在 CPU 上运行，不能用 {device}；请不要指定设备"),
    (
        "the device {device} needs an NVIDIA GPU and its driver, and none was found; use cpu",
        "设备 {device} 需要 NVIDIA GPU 及其驱动，但没有找到；请用 cpu",
    ),
    ("There is no device {device}; choose {devices}.", "没有设备 {device}；请选择 {devices}。"),
    ("The device {device} is not supported; choose {devices}.", "不支持设备 {device}；请选择 {devices}。"),
    (
        "The device {device} is not there ({n} CUDA devices found); choose cpu.",
        "没有设备 {device}（找到 {n} 个 CUDA 设备）；请选择 cpu。",
    ),
    (
        "The model's scores are not finite numbers; its weights are damaged, so restore them.",
        "模型给出的分数不是有限数：权重已损坏，请恢复。",
    ),
    # Options; these fit much, so they come last
    (
        "num_beams is {beams} and temperature {temperature}, but beam search draws nothing; "
        "set num_beams to 1 or temperature to 0.",
        "num_beams 为 {beams}，temperature 为 {temperature}，但束搜索不采样；请将前者设为 1 或后者设为 0。",
    ),
    (
        "{name} is {value}; choose a whole number from {low} to {high}.",
        "{name} 为 {value}；请选择 {low} 到 {high} 的整数。",
    ),
    ("{name} is {value}; choose one of {choices}.", "{name} 为 {value}；请从 {choices} 中选择。"),
    (
        "{name} is {value}; choose 0 (greedy) or a finite number above it.",
        "{name} 为 {value}；请选择 0（贪心）或大于 0 的有限数。",
    ),
    (
        "{name} is {value}; choose a {number} above 0, up to {high}.",
        "{name} 为 {value}；请选择大于 0 且不超过 {high} 的数。",
    ),
    ("{name} is {value}; choose a {number} from {low} to {high}.", "{name} 为 {value}；请选择 {low} 到 {high} 的数。"),
)
