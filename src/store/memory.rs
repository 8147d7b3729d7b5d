/// placeholder
#[derive(Debug)]
pub struct MemoryStore;
