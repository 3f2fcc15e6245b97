// Driver of @platformatic/kafka: one JSON command per line in, one JSON answer per line out.
import readline from 'node:readline'
import { Admin, Consumer, Producer, ProtocolError } from '@platformatic/kafka'

const TIMEOUT_MS = 30_000
const POLL_MS = 50
const bootstrapBrokers = process.argv[2].split(',')
const common = { clientId: 'compat', bootstrapBrokers, retries: 20, retryDelay: 100, metadataMaxAge: 1000 }
const admin = new Admin(common)
const members = new Map()
const writers = new Map()
let readers = 0

const bytes = text => (text === null ? undefined : Buffer.from(text, 'base64'))
const text = buffer => (buffer === null || buffer === undefined ? null : buffer.toString('base64'))

function fromMessage(message) {
  return {
    offset: Number(message.offset),
    timestamp_ms: Number(message.timestamp),
    key: text(message.key),
    value: text(message.value),
    headers: [...message.headers].map(([name, value]) => [name.toString(), text(value)]),
  }
}

// A consumer in a group: it hands records over by itself, and they are kept until they are asked for.
class Member {
  constructor(topic, consumer) {
    this.topic = topic
    this.consumer = consumer
    this.waiting = []
    this.next = new Map()
  }

  async start() {
    const options = { topics: [this.topic], mode: 'committed', fallbackMode: 'earliest', autocommit: false, maxWaitTime: 50 }
    this.stream = await this.consumer.consume(options)
    this.stream.on('data', message => this.waiting.push(message))
    this.stream.on('error', error => (this.error = error))
  }

  // A fetch that is under way when partitions move still brings their records: these are the next owner's.
  take() {
    const own = new Set(this.assignment())
    const taken = this.waiting.filter(message => own.has(message.partition))
    this.waiting = []
    for (const { partition, offset } of taken) this.next.set(partition, offset + 1n)
    return taken
  }

  async commit() {
    const own = new Set(this.assignment())
    const kept = [...this.next].filter(([partition]) => own.has(partition))
    const offsets = kept.map(([partition, offset]) => ({ topic: this.topic, partition, offset, leaderEpoch: -1 }))
    if (offsets.length > 0) await this.consumer.commit({ offsets })
  }

  assignment() {
    return (this.consumer.assignments ?? []).filter(one => one.topic === this.topic).flatMap(one => one.partitions)
  }

  async close() {
    await this.stream.close()
    await this.consumer.close(true)
  }
}

async function join({ group, topic, member, instance_id: instance, is_assigned_by_broker: isAssigned }) {
  const protocol = isAssigned
    ? { groupProtocol: 'consumer' }
    : { groupProtocol: 'classic', sessionTimeout: 10_000, heartbeatInterval: 300 }
  const identity = instance === null ? {} : { groupInstanceId: instance }
  const joined = new Member(topic, new Consumer({ ...common, groupId: group, ...protocol, ...identity }))
  members.set(member, joined)
  await joined.start()
  return null
}

async function poll({ member }) {
  await new Promise(resolve => setTimeout(resolve, POLL_MS))
  return members.get(member).take().map(message => [message.partition, fromMessage(message)])
}

async function leave({ member }) {
  await members.get(member).close()
  members.delete(member)
  return null
}

async function committedOffset({ group, topic, partition }) {
  const groups = [{ groupId: group, topics: [{ name: topic, partitionIndexes: [partition] }] }]
  const [found] = await admin.listConsumerGroupOffsets({ groups })
  const offset = found.topics[0]?.partitions[0]?.committedOffset ?? -1n
  return offset < 0n ? null : Number(offset)
}

async function commitOffset({ group, topic, partition, offset }) {
  const partitionOffsets = [{ partition, offset: BigInt(offset) }]
  await admin.alterConsumerGroupOffsets({ groupId: group, topics: [{ name: topic, partitionOffsets }] })
  return null
}

async function describeGroup({ group }) {
  const found = (await admin.describeGroups({ groups: [group] })).get(group)
  const state = found.state.toLowerCase()
  return { state: state[0].toUpperCase() + state.slice(1), member_count: found.members.size }
}

async function consume({ topic, partition, offset, count, isolation }) {
  const isolationLevel = isolation === 'read_committed' ? 1 : 0
  const consumer = new Consumer({ ...common, groupId: `reader-${process.pid}-${readers++}`, isolationLevel })
  const offsets = [{ topic, partition, offset: BigInt(offset) }]
  const stream = await consumer.consume({ topics: [topic], mode: 'manual', offsets, maxWaitTime: 50, isolationLevel })
  const taken = []
  stream.on('data', message => message.partition === partition && taken.push(message))
  const deadline = Date.now() + TIMEOUT_MS
  while (taken.length < count && Date.now() < deadline) await new Promise(resolve => setTimeout(resolve, POLL_MS))
  await stream.close()
  await consumer.close(true)
  return taken.map(fromMessage)
}

// It stays with a leader that does not answer, and asks for another one only when that broker is back and refuses: its
// attempts must last until then. So must the transaction, whose timeout is that of requests, by default 5 s; when it is
// over, the coordinator aborts, and brokers refuse the epoch, in Kafka too.
async function openTransactions({ writer, transactional_id: transactionalId }) {
  const producer = new Producer({ ...common, retries: 1000, timeout: 120_000, idempotent: true, transactionalId })
  writers.set(writer, { producer })
  return null
}

async function sendInTransaction({ writer, topic, partition, records }) {
  const messages = records.map(record => ({ topic, partition, key: bytes(record.key), value: bytes(record.value) }))
  await writers.get(writer).transaction.send({ messages })
  return null
}

const actions = {
  join_group: join,
  member_poll: poll,
  member_assignment: ({ member }) => members.get(member).assignment(),
  member_commit: async ({ member }) => {
    await members.get(member).commit()
    return null
  },
  member_close: leave,
  committed_offset: committedOffset,
  commit_offset: commitOffset,
  list_groups: async () => [...(await admin.listGroups({ types: ['classic', 'consumer'] })).keys()],
  describe_group: describeGroup,
  delete_group: async ({ group }) => {
    await admin.deleteGroups({ groups: [group] })
    return null
  },
  consume,
  open_transactions: openTransactions,
  transaction_begin: async ({ writer }) => {
    const found = writers.get(writer)
    found.transaction = await found.producer.beginTransaction()
    return null
  },
  transaction_send: sendInTransaction,
  transaction_commit: async ({ writer }) => {
    await writers.get(writer).transaction.commit()
    return null
  },
  transaction_abort: async ({ writer }) => {
    await writers.get(writer).transaction.abort()
    return null
  },
  transaction_close: async ({ writer }) => {
    // A producer that was replaced cannot end its transaction, and says so once more.
    await writers.get(writer).producer.close(true).catch(() => {})
    writers.delete(writer)
    return null
  },
}

// It wraps errors in errors, those of all attempts in their order; the last one with a code is the broker's.
function brokerError(error) {
  if (error instanceof ProtocolError || typeof error?.apiCode === 'number') return error
  for (const inner of [...(error?.errors ?? []).toReversed(), error?.cause].filter(Boolean)) {
    const found = brokerError(inner)
    if (found) return found
  }
  return null
}

async function answer(command) {
  try {
    return { result: (await actions[command.do](command)) ?? null }
  } catch (error) {
    const known = brokerError(error)
    if (known) return { code: known.apiCode, message: known.message }
    return { fault: String(error?.stack ?? error) }
  }
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  process.stdout.write(JSON.stringify(await answer(JSON.parse(line))) + '\n')
}
process.exit(0)
