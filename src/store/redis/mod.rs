/// placeholder
#[derive(Debug)]
pub struct RedisStore;
/// placeholder
#[derive(Debug)]
pub struct RedisStoreBuilder;
