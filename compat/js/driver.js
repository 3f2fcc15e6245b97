// Driver of kafkajs: one JSON command per line in, one JSON answer per line out.
'use strict'

const readline = require('node:readline')
const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require('kafkajs')
const lz4 = require('lz4js')
const SnappyCodec = require('kafkajs-snappy')
const zstd = require('@bokuweb/zstd-wasm')
// What its consumer does with what it fetched.
const withoutAborted = require('kafkajs/src/consumer/filterAbortedMessages')
const membersOf = require('./members')
const security = require('./security')
const transactionsOf = require('./transactions')

const TIMEOUT_MS = 30_000
const LARGEST_FETCH_BYTES = 50_000_000
const OFFSET_OUT_OF_RANGE = 1
const READ_COMMITTED = 1
// A leader that has just been named may not know of it yet: a consumer asks again.
const NOT_YET_LED = [3, 5, 6]
const TYPES = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

// kafkajs brings only gzip; the others are plugged in, as its users do.
CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => withIndependentBlocks(Buffer.from(lz4.compress(encoder.buffer))),
  decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
})

// Kafka takes no linked blocks. lz4js says that its blocks are linked, but a single one has nothing to be linked with.
function withIndependentBlocks(frame) {
  const independentDescriptorWithChecksum = [0x60, 0x70, 0x73]
  frame.set(independentDescriptorWithChecksum, 4)
  return frame
}

const bytes = text => (text === null ? null : Buffer.from(text, 'base64'))
const text = buffer => (buffer === null || buffer === undefined ? null : buffer.toString('base64'))

const kafka = new Kafka({
  brokers: process.argv[2].split(','),
  logLevel: logLevel.NOTHING,
  ...security(),
  retry: { initialRetryTime: 50, retries: 5 },
})
const admin = kafka.admin()
const producers = new Map()
let cluster

function toHeaders(rows) {
  const headers = {}
  for (const [name, value] of rows) {
    const decoded = bytes(value)
    if (name in headers) headers[name] = [].concat(headers[name], [decoded])
    else headers[name] = decoded
  }
  return headers
}

function fromHeaders(headers) {
  return Object.entries(headers ?? {}).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map(one => [name, text(one)])
  )
}

async function producer(idempotent) {
  if (!producers.has(idempotent)) {
    const options = { idempotent, allowAutoTopicCreation: true, createPartitioner: () => ({ message }) => message.partition }
    if (idempotent) options.maxInFlightRequests = 1
    const made = kafka.producer(options)
    await made.connect()
    producers.set(idempotent, made)
  }
  return producers.get(idempotent)
}

function toMessage(record, partition) {
  return {
    partition,
    key: bytes(record.key),
    value: bytes(record.value),
    headers: toHeaders(record.headers),
    ...(record.timestamp_ms === null ? {} : { timestamp: String(record.timestamp_ms) }),
  }
}

async function produce({ topic, partition, records, compression, acks, idempotent }) {
  const messages = records.map(record => toMessage(record, partition))
  const send = { topic, messages, acks: acks === 'all' ? -1 : Number(acks), compression: TYPES[compression] }
  const results = await (await producer(idempotent)).send(send)
  const first = results?.[0]?.baseOffset
  return records.map((_, index) => (acks === '0' || first === undefined ? null : Number(first) + index))
}

// kafkajs consumes only as a member of a group; its own connection layer below that fetches without one.
async function connectCluster(isolation) {
  if (cluster === undefined) {
    const create = Object.getOwnPropertySymbols(kafka).find(one => one.description === 'private:Kafka:createCluster')
    cluster = kafka[create]({ metadataMaxAge: 1000, isolationLevel: isolation })
    await cluster.connect()
  }
  return cluster
}

async function consume({ topic, partition, offset, count, isolation, rack }) {
  if (rack) return members.consume_in_rack({ topic, partition, count, rack })
  const isolationLevel = isolation === 'read_committed' ? READ_COMMITTED : 0
  const taken = []
  let next = offset
  const deadline = Date.now() + TIMEOUT_MS
  while (taken.length < count && Date.now() < deadline) {
    const messages = await fetchOnce(topic, partition, next, isolationLevel)
    if (messages === null) {
      next = await listOffset({ topic, partition, at: 'earliest' })
      continue
    }
    for (const message of messages) {
      if (Number(message.offset) >= next) taken.push(message)
    }
    if (taken.length > 0) next = Number(taken[taken.length - 1].offset) + 1
  }
  return taken.map(fromMessage)
}

async function leaderOf(topic, partition, isolationLevel) {
  const connected = await connectCluster(isolationLevel)
  await connected.addTargetTopic(topic)
  await connected.refreshMetadata()
  const [leader] = Object.keys(connected.findLeaderForPartitions(topic, [partition]))
  return connected.findBroker({ nodeId: leader })
}

// As its consumer does, it looks for the leader again where the last one does not answer.
async function fetchOnce(topic, partition, fetchOffset, isolationLevel) {
  const wanted = { partition, fetchOffset: String(fetchOffset), maxBytes: 1_048_576 }
  try {
    const broker = await leaderOf(topic, partition, isolationLevel)
    const { responses } = await broker.fetch({
      replicaId: -1,
      isolationLevel,
      maxWaitTime: 500,
      minBytes: 1,
      maxBytes: LARGEST_FETCH_BYTES,
      topics: [{ topic, partitions: [wanted] }],
    })
    const { messages, abortedTransactions } = responses[0].partitions[0]
    const committed = isolationLevel === READ_COMMITTED ? withoutAborted({ messages, abortedTransactions }) : messages
    return committed.filter(message => !message.isControlRecord)
  } catch (error) {
    if (error.code === OFFSET_OUT_OF_RANGE) return null
    if (!NOT_YET_LED.includes(error.code) && !error.retriable) throw error
    await new Promise(resolve => setTimeout(resolve, 50))
    return []
  }
}

function fromMessage(message) {
  return {
    offset: Number(message.offset),
    timestamp_ms: Number(message.timestamp),
    key: text(message.key),
    value: text(message.value),
    headers: fromHeaders(message.headers),
  }
}

async function listOffset({ topic, partition, at }) {
  if (typeof at === 'number') return offsetAtTimestamp(topic, partition, at)
  const found = (await admin.fetchTopicOffsets(topic)).find(one => one.partition === partition)
  return Number(at === 'earliest' ? found.low : found.high)
}

// For a time after the last record kafkajs answers with the end of the log.
async function offsetAtTimestamp(topic, partition, timestamp) {
  const byTime = (await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)).find(one => one.partition === partition)
  const end = await listOffset({ topic, partition, at: 'latest' })
  return Number(byTime.offset) === end ? null : Number(byTime.offset)
}

async function describeTopic({ topic }) {
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  return topics[0].partitions.map(one => ({
    partition: one.partitionId,
    leader: one.leader,
    replicas: one.replicas,
    in_sync_replicas: one.isr,
  }))
}

async function createTopic({ topic, partitions, configs, validate_only: validateOnly }) {
  const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
  const topics = [{ topic, numPartitions: partitions, replicationFactor: -1, configEntries }]
  const created = await admin.createTopics({ topics, validateOnly, waitForLeaders: !validateOnly })
  // kafkajs hides this one error behind its result.
  if (!created) throw Object.assign(new Error('the topic exists'), { code: 36 })
  return null
}

async function describeConfigs({ kind, name }) {
  const type = kind === 'broker' ? ConfigResourceTypes.BROKER : ConfigResourceTypes.TOPIC
  const { resources } = await admin.describeConfigs({ resources: [{ type, name }], includeSynonyms: false })
  return Object.fromEntries(resources[0].configEntries.map(entry => [entry.configName, entry.configValue]))
}

async function replaceConfigs({ topic, configs }) {
  const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
  const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }]
  await admin.alterConfigs({ validateOnly: false, resources })
  return null
}

async function deleteRecords({ topic, partition, before_offset: offset }) {
  // It looks for the leader in what it knows already: let it learn the topic first.
  await admin.fetchTopicOffsets(topic)
  await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(offset) }] })
  return listOffset({ topic, partition, at: 'earliest' })
}

async function describeCluster() {
  const { brokers, controller, clusterId } = await admin.describeCluster()
  const addresses = brokers.map(one => [String(one.nodeId), `${one.host}:${one.port}`])
  return { cluster_id: clusterId, controller, brokers: Object.fromEntries(addresses) }
}

const members = membersOf(kafka, admin, fromMessage)
const transactions = transactionsOf(kafka, toMessage)

const actions = {
  ...members,
  ...transactions,
  produce,
  consume,
  list_offset: listOffset,
  list_topics: () => admin.listTopics(),
  describe_topic: describeTopic,
  create_topic: createTopic,
  delete_topic: async ({ topic }) => {
    await admin.deleteTopics({ topics: [topic] })
    return null
  },
  create_partitions: async ({ topic, total }) => {
    await admin.createPartitions({ topicPartitions: [{ topic, count: total }] })
    return null
  },
  describe_configs: describeConfigs,
  replace_configs: replaceConfigs,
  delete_records: deleteRecords,
  describe_cluster: describeCluster,
}

// kafkajs wraps errors in errors; the innermost one with a code is the broker's.
function brokerError(error) {
  const inner = error?.errors?.[0] ?? error?.partitions?.[0]?.error ?? error?.cause ?? error?.originalError
  if (typeof error?.code === 'number') return error
  return inner && inner !== error ? brokerError(inner) : null
}

async function answer(command) {
  try {
    return { result: (await actions[command.do](command)) ?? null }
  } catch (error) {
    const known = brokerError(error)
    if (known) return { code: known.code, message: known.message }
    return { fault: String(error?.stack ?? error) }
  }
}

async function main() {
  await zstd.init()
  await admin.connect()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await answer(JSON.parse(line))) + '\n')
  }
  process.exit(0)
}

main()
