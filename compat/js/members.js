// Consumers in groups. kafkajs hands records over by itself: they are kept until they are asked for.
'use strict'

const POLL_MS = 50
const TIMEOUT_MS = 30_000
const GROUP_ID_NOT_FOUND = 69

class Member {
  constructor(consumer, topic) {
    this.consumer = consumer
    this.topic = topic
    this.partitions = []
    this.waiting = []
    this.next = new Map()
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      this.partitions = payload.memberAssignment[topic] ?? []
      this.next.clear()
    })
    consumer.on(consumer.events.REBALANCING, () => {
      this.partitions = []
      this.waiting = []
    })
  }

  async start() {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [this.topic], fromBeginning: true })
    await this.consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => this.waiting.push([partition, message]),
    })
  }

  take() {
    const taken = this.waiting
    this.waiting = []
    for (const [partition, message] of taken) this.next.set(partition, String(Number(message.offset) + 1))
    return taken
  }

  async commit() {
    const offsets = [...this.next].map(([partition, offset]) => ({ topic: this.topic, partition, offset }))
    if (offsets.length > 0) await this.consumer.commitOffsets(offsets)
  }
}

module.exports = (kafka, admin, fromMessage) => {
  const members = new Map()

  async function join({ group, topic, member }) {
    const consumer = kafka.consumer({
      groupId: group,
      sessionTimeout: 10_000,
      heartbeatInterval: 300,
      maxWaitTimeInMs: 50,
      metadataMaxAge: 1000,
    })
    members.set(member, new Member(consumer, topic))
    await members.get(member).start()
    return null
  }

  async function poll({ member }) {
    await new Promise(resolve => setTimeout(resolve, POLL_MS))
    return members.get(member).take().map(([partition, message]) => [partition, fromMessage(message)])
  }

  async function leave({ member }) {
    await members.get(member).consumer.disconnect()
    members.delete(member)
    return null
  }

  // In a group of its own, from the beginning on: only its consumers in groups know of racks.
  async function consumeInRack({ topic, partition, count, rack }) {
    const consumer = kafka.consumer({ groupId: `in-${rack}-of-${topic}`, rackId: rack, maxWaitTimeInMs: 50 })
    const member = new Member(consumer, topic)
    const taken = []
    const deadline = Date.now() + TIMEOUT_MS
    await member.start()
    while (taken.length < count && Date.now() < deadline) {
      await new Promise(resolve => setTimeout(resolve, POLL_MS))
      taken.push(...member.take().filter(([of]) => of === partition).map(([, message]) => fromMessage(message)))
    }
    await consumer.disconnect()
    return taken
  }

  async function committedOffset({ group, topic, partition }) {
    const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
    const offset = Number(found.partitions.find(one => one.partition === partition).offset)
    return offset < 0 ? null : offset
  }

  async function describeGroup({ group }) {
    const { groups } = await admin.describeGroups([group])
    return { state: groups[0].state, member_count: groups[0].members.length }
  }

  async function deleteGroup({ group }) {
    try {
      await admin.deleteGroups([group])
    } catch (error) {
      const code = error.groups?.[0]?.errorCode ?? GROUP_ID_NOT_FOUND
      throw Object.assign(error, { code })
    }
    return null
  }

  return {
    consume_in_rack: consumeInRack,
    join_group: join,
    member_poll: poll,
    member_assignment: ({ member }) => members.get(member).partitions,
    member_commit: async ({ member }) => {
      await members.get(member).commit()
      return null
    },
    member_close: leave,
    committed_offset: committedOffset,
    commit_offset: async ({ group, topic, partition, offset }) => {
      await admin.setOffsets({ groupId: group, topic, partitions: [{ partition, offset: String(offset) }] })
      return null
    },
    list_groups: async () => (await admin.listGroups()).groups.map(one => one.groupId),
    describe_group: describeGroup,
    delete_group: deleteGroup,
  }
}
